package events

import (
	"bytes"
	"compress/gzip"
	"io"
	"strconv"
)

const (
	// compressData is the size from which the data of a fact is compressed: smaller ones stay readable with any tool.
	compressData = 128 << 10
	encodingGzip = "gzip"
)

// pack compresses the data of a message.
func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, Errorf(Internal, "compress data: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, Errorf(Internal, "compress data: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, Errorf(Internal, "compress data: %w", err)
	}
	return b.Bytes(), nil
}

// unpacked returns the data as it was before the encoding that the headers name.
func unpacked(h map[string][]string, data []byte) ([]byte, error) {
	switch encoding := header(h, headerEncoding); encoding {
	case "":
		return data, nil
	case encodingGzip:
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(r, maxDocument))
		}
		if err != nil {
			return nil, Refuse([]Finding{{Path: headerEncoding, Message: "the data is not gzip: " + err.Error()}})
		}
		return data, nil
	default:
		return nil, Refuse([]Finding{{Path: headerEncoding, Message: strconv.Quote(encoding) + " is not understood: send gzip or none"}})
	}
}
