// Package document defines the stored form of a service's entity, and reads its public view.
package document

import (
	"bytes"
	"encoding/json"

	"github.com/klauspost/compress/zstd"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
)

// Schema is the version of the documents that this code writes. A replica refuses a newer one.
const Schema = 1

// Document is what a service stores for one entity; compare-and-set on it is the only commit point.
type Document struct {
	Schema  int                      `json:"schema"`
	Version uint64                   `json:"version"`           // +1 at each save
	State   json.RawMessage          `json:"state"`             // the machine's state, its public view in the field "view"
	Applied []string                 `json:"applied,omitempty"` // ids of the newest inputs applied, oldest first
	Number  map[events.Family]uint64 `json:"number,omitempty"`  // last fact number per family
	Outbox  []broker.Message         `json:"outbox,omitempty"`  // decided, not yet known to be published, in order
	// Positions in Outbox of facts whose long part is restored from State.
	Elided []int `json:"elided,omitempty"`
	// Launches up to this revision are known to be published; later ones are rebuilt from State.
	Published uint64 `json:"published,omitempty"`
}

// compressOver is the size in bytes above which documents are stored compressed.
const compressOver = 4 << 10

// zstdMagic begins a document that is compressed.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// Encode returns the stored form: JSON, if long compressed with Zstandard.
func Encode(d Document) ([]byte, error) {
	plain, err := json.Marshal(d)
	if err != nil {
		return nil, errcode.Errorf(errcode.Internal, "encode document: %w", err)
	}
	if len(plain) > limits.Unpacked.Max {
		return nil, errcode.Errorf(errcode.TooLarge, "document has %d bytes (%s)", len(plain), limits.Unpacked)
	}
	if len(plain) < compressOver {
		return plain, nil
	}
	return compressor.EncodeAll(plain, nil), nil
}

// The compressor and the decompressor are used by any number of goroutines. They are made with the
// package, because each holds a channel: one that is made within a bubble of testing/synctest must
// not be used in the next. Who uses them takes turns, and a window is 1 MiB: a process keeps
// 2 MiB for them, where the defaults take 10 for each processor.
var compressor, decompressor = makeCodec()

func makeCodec() (*zstd.Encoder, *zstd.Decoder) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	w.EncodeAll(nil, nil) // makes its channel
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limits.Unpacked.Max)))
	if err != nil {
		panic(err)
	}
	return w, r
}

// Decode decodes the stored form. A document of a newer schema is refused with Newer.
func Decode(b []byte) (Document, error) {
	var d Document
	if bytes.HasPrefix(b, zstdMagic) {
		plain, err := decompressor.DecodeAll(b, nil)
		if err != nil {
			return d, errcode.Errorf(errcode.Invalid, "unpack document: %w", err)
		}
		b = plain
	}
	err := json.Unmarshal(b, &d)
	if err != nil { // a newer schema may have different fields
		var version struct {
			Schema int `json:"schema"`
		}
		if json.Unmarshal(b, &version) == nil {
			d.Schema = version.Schema
		}
	}
	switch {
	case d.Schema > Schema:
		return Document{}, errcode.Errorf(errcode.Newer, "document has schema %d, this version understands up to %d: upgrade it", d.Schema, Schema)
	case err != nil:
		return d, errcode.Errorf(errcode.Invalid, "decode document: %w", err)
	case d.Schema < 1: // all of ours have one
		return d, errcode.Errorf(errcode.Invalid, "decode document: it has no schema: it is none of a service")
	}
	return d, nil
}
