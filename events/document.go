package events

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"sync"
)

// DocumentSchema is the version of the stored documents that this code writes. A replica refuses a newer one.
const DocumentSchema = 1

// Document is what a judge stores for one entity; compare-and-set on it is the only commit point.
type Document struct {
	Schema  int               `json:"schema"`
	Version uint64            `json:"version"`           // +1 at each save
	State   json.RawMessage   `json:"state"`             // the machine's state, its public view in the field "view"
	Applied []string          `json:"applied,omitempty"` // ids of the newest inputs taken in, oldest first
	Number  map[Family]uint64 `json:"number,omitempty"`  // last fact number per family
	Outbox  []Message         `json:"outbox,omitempty"`  // decided, not yet known to be told, in order
	Brief   []int             `json:"brief,omitempty"`   // positions in Outbox of facts whose long part is made again from State
	Told    uint64            `json:"told,omitempty"`    // launches up to this revision are known to be told; the others are made again from State
}

// documents over this many bytes are stored compressed.
const compressOver = 4 << 10

// EncodeDocument makes the stored form: JSON, compressed with DEFLATE behind a zero byte when it is long.
func EncodeDocument(d Document) ([]byte, error) {
	plain, err := json.Marshal(d)
	if err != nil {
		return nil, Errorf(Internal, "encode document: %w", err)
	}
	if len(plain) > LimitUnpacked.Most {
		return nil, Errorf(TooLarge, "document has %d bytes (%s)", len(plain), LimitUnpacked)
	}
	if len(plain) < compressOver {
		return plain, nil
	}
	var b bytes.Buffer
	b.WriteByte(0)
	w := packers.Get().(*flate.Writer)
	defer packers.Put(w)
	w.Reset(&b)
	if _, err := w.Write(plain); err != nil {
		return nil, Errorf(Internal, "compress document: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, Errorf(Internal, "compress document: %w", err)
	}
	return b.Bytes(), nil
}

// packers are kept for reuse: a new one costs more than what it packs.
var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// DecodeDocument reads the stored form. A document of a newer schema is refused with Newer.
func DecodeDocument(b []byte) (Document, error) {
	var d Document
	if len(b) > 0 && b[0] == 0 {
		plain, err := readUpTo(flate.NewReader(bytes.NewReader(b[1:])), LimitUnpacked.Most)
		if err != nil {
			return d, Errorf(Invalid, "unpack document: %w", err)
		}
		b = plain
	}
	err := json.Unmarshal(b, &d)
	if err != nil { // a newer schema need not fit our fields
		var version struct {
			Schema int `json:"schema"`
		}
		if json.Unmarshal(b, &version) == nil {
			d.Schema = version.Schema
		}
	}
	switch {
	case d.Schema > DocumentSchema:
		return Document{}, Errorf(Newer, "document has schema %d, this version understands up to %d: upgrade it", d.Schema, DocumentSchema)
	case err != nil:
		return d, Errorf(Invalid, "decode document: %w", err)
	}
	return d, nil
}
