package cloudevent

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strconv"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	// compressData is the size from which the data of a fact is compressed: smaller data stays
	// readable with any tool.
	compressData = 128 << 10
	encodingGzip = "gzip"
)

// pack compresses the data of a message.
func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.Internal, "compress data: %w", err)
	}
	return b.Bytes(), nil
}

// unpacked reverses the encoding named in the headers. It returns at most this many bytes.
func unpacked(h map[string][]string, data []byte, most int) ([]byte, error) {
	switch encoding := broker.HeaderValue(h, headerEncoding); encoding {
	case "":
		return data, nil
	case encodingGzip:
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = readLimited(r, most)
		}
		if errors.Is(err, errcode.ErrTooLarge) {
			return nil, err
		}
		if err != nil {
			return nil, errcode.Refuse([]spec.FieldError{{Path: headerEncoding, Message: "the data is not gzip: " + err.Error()}})
		}
		return data, nil
	default:
		return nil, errcode.Refuse([]spec.FieldError{{Path: headerEncoding, Message: strconv.Quote(limits.Shorten(encoding, limits.Word.Max)) + " is not understood: send gzip or none"}})
	}
}

// readLimited reads everything, or fails if it is more than most bytes.
func readLimited(r io.Reader, most int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(data) > most {
		return nil, errcode.Errorf(errcode.TooLarge, "unpacks to more than %d bytes", most)
	}
	return data, err
}
