package cloudevent

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strconv"

	"github.com/regroup-io/regroup/events"
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
		return nil, events.Errorf(events.Internal, "compress data: %w", err)
	}
	return b.Bytes(), nil
}

// unpacked reverses the encoding named in the headers. It returns at most this many bytes.
func unpacked(h map[string][]string, data []byte, most int) ([]byte, error) {
	switch encoding := header(h, headerEncoding); encoding {
	case "":
		return data, nil
	case encodingGzip:
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = events.ReadLimited(r, most)
		}
		if errors.Is(err, events.ErrTooLarge) {
			return nil, err
		}
		if err != nil {
			return nil, events.Refuse([]spec.FieldError{{Path: headerEncoding, Message: "the data is not gzip: " + err.Error()}})
		}
		return data, nil
	default:
		return nil, events.Refuse([]spec.FieldError{{Path: headerEncoding, Message: strconv.Quote(limits.Shorten(encoding, limits.Word.Max)) + " is not understood: send gzip or none"}})
	}
}
