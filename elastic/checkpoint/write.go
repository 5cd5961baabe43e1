package checkpoint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"unsafe"

	"github.com/zeebo/xxh3"
)

const (
	magic      = "RGCKPT01"
	blockBytes = 1 << 20
	markBytes  = 16
	maxHead    = 64 << 20
)

// Head describes a checkpoint.
type Head struct {
	Name   Name   `json:"name"`
	Layout string `json:"layout"` // hex, of what the program has registered: only an equal one can use it
	Order  string `json:"order"`  // of bytes: little or big
	Meta   int64  `json:"meta"`
	Data   int64  `json:"data"`
	Parts  []Part `json:"parts"`
}

// Part is a tensor.
type Part struct {
	Name  string `json:"name"`
	Type  string `json:"type"` // as Go has it: float32
	At    int64  `json:"at"`   // in data
	Bytes int64  `json:"bytes"`
}

// Image is a state that is to be written; nobody may change it meanwhile.
type Image struct {
	Name   Name
	Layout string
	Parts  []Part
	Meta   []byte
	Data   []byte
}

// Write makes an image the newest checkpoint and removes those that are too old then. When it returns nil the checkpoint is on
// the disk. An error leaves what was there; an end of ctx is one.
func (f *Dir) Write(ctx context.Context, i Image) (err error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	w := &writer{folder: f, path: f.Path(i.Name) + "." + hex.EncodeToString(id[:]) + unfinished, seal: sha256.New()}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write checkpoint %v: %w", i.Name, err)
		}
	}()
	if err := w.create(); err != nil {
		return err
	}
	if err := errors.Join(w.image(ctx, i), w.file.Close()); err != nil {
		return errors.Join(err, f.remove(w.path))
	}
	if err := f.alive("rename", w.path); err != nil {
		return err
	}
	if err := os.Rename(w.path, f.Path(i.Name)); err != nil {
		return errors.Join(err, f.remove(w.path))
	}
	if err := f.flush(); err != nil {
		return err
	}
	return f.tidy()
}

// flush makes the names in the folder durable.
func (f *Dir) flush() error {
	if err := f.alive("sync folder", f.dir); err != nil {
		return err
	}
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writer writes one file.
type writer struct {
	folder *Dir
	path   string
	file   *os.File
	seal   hash.Hash
}

func (w *writer) create() (err error) {
	if err := w.folder.alive("create", w.path); err != nil {
		return err
	}
	w.file, err = os.OpenFile(w.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	return err
}

func (w *writer) write(b []byte) error {
	if err := w.folder.alive("write", w.path); err != nil {
		return err
	}
	_, err := w.file.Write(b)
	return err
}

// image writes all of a file, each block while its hash has it in the cache.
func (w *writer) image(ctx context.Context, i Image) error {
	head, err := json.Marshal(Head{
		Name: i.Name, Layout: i.Layout, Order: byteOrder(), Meta: int64(len(i.Meta)), Data: int64(len(i.Data)), Parts: i.Parts,
	})
	if err != nil {
		return err
	}
	if len(head) > maxHead {
		return fmt.Errorf("a head of %d bytes, at most %d are read", len(head), maxHead)
	}
	front := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(head)))
	front = append(front, head...)
	for _, b := range [][]byte{front, i.Meta} {
		w.seal.Write(b)
		if err := w.write(b); err != nil {
			return err
		}
	}
	var marks []byte
	for at := 0; at < len(i.Data); at += blockBytes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		block := i.Data[at:min(at+blockBytes, len(i.Data))]
		m := mark(block)
		marks = append(marks, m[:]...)
		if err := w.write(block); err != nil {
			return err
		}
	}
	w.seal.Write(marks)
	if err := w.write(w.seal.Sum(marks)); err != nil {
		return err
	}
	if err := w.folder.alive("sync", w.path); err != nil {
		return err
	}
	return w.file.Sync()
}

func mark(block []byte) [markBytes]byte { return xxh3.Hash128(block).Bytes() }

func byteOrder() string {
	if one := uint16(1); *(*byte)(unsafe.Pointer(&one)) == 1 {
		return "little"
	}
	return "big"
}
