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

	"github.com/regroup-io/regroup/elastic/reshard"
)

const (
	magic      = "RGCKPT01"
	chunkBytes = 1 << 20
	hashBytes  = 16
	maxHeader  = 64 << 20
)

// Header describes a checkpoint.
type Header struct {
	Name    Name     `json:"name"`
	Layout  string   `json:"layout"` // hex, the hash of what the program has registered
	Order   string   `json:"order"`  // of bytes: little or big
	Meta    int64    `json:"meta"`
	Data    int64    `json:"data"`
	Tensors []Tensor `json:"tensors"`
	// Parts is the ID of the set of parts that belongs to it, and Sharded are the tensors that
	// those are of; empty = the state is not sharded.
	Parts   string          `json:"parts,omitempty"`
	Sharded []ShardedTensor `json:"sharded,omitempty"`
}

// ShardedTensor describes a tensor that is in parts.
type ShardedTensor struct {
	Name  string `json:"name"`
	Type  string `json:"type"` // in the words of the program
	Width int    `json:"width"`
	Shape []int  `json:"shape"`
}

// Tensor describes a tensor.
type Tensor struct {
	Name   string `json:"name"`
	Type   string `json:"type"`   // in Go: float32
	Offset int64  `json:"offset"` // in data
	Bytes  int64  `json:"bytes"`
}

// Image is a state to be written. It must not change meanwhile.
type Image struct {
	Name    Name
	Layout  string
	Tensors []Tensor
	Meta    []byte
	Data    []byte
	Parts   *Set // of a sharded state
	Sharded []reshard.Tensor
}

// Bytes returns about how large its file is, and not less.
func (i Image) Bytes() int64 {
	header := 1024
	for _, t := range i.Tensors {
		header += 128 + 6*len(t.Name) + len(t.Type)
	}
	for _, t := range i.Sharded {
		header += 128 + 6*len(t.Name) + len(t.Type) + 24*len(t.Shape)
	}
	return int64(header+len(i.Meta)+len(i.Data)) + int64(len(i.Data)/chunkBytes+1)*hashBytes
}

// Write makes an image the newest checkpoint and removes old ones. When it returns nil the
// checkpoint is on the disk. An error, like the end of ctx, leaves the other checkpoints as they
// are.
func (d *Dir) Write(ctx context.Context, i Image) (err error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	d.mu.Lock()
	d.run = i.Name.Run
	d.mu.Unlock()
	w := &writer{dir: d, path: d.Path(i.Name) + "." + hex.EncodeToString(id[:]) + tempSuffix, checksum: sha256.New()}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write checkpoint %v: %w", i.Name, err)
		}
	}()
	if err := w.create(); err != nil {
		return err
	}
	if err := errors.Join(w.writeImage(ctx, i), w.file.Close()); err != nil {
		return errors.Join(err, d.remove(w.path))
	}
	if d.isSuspect(i.Name) {
		return errors.Join(errors.New("a rank has computed wrongly before it"), d.remove(w.path))
	}
	if err := d.fault("rename", w.path); err != nil {
		return err
	}
	if err := os.Rename(w.path, d.Path(i.Name)); err != nil {
		return errors.Join(err, d.remove(w.path))
	}
	if err := d.sync(d.path); err != nil {
		return err
	}
	if i.Parts != nil {
		return nil // PruneParts removes old ones
	}
	return d.prune()
}

// sync makes the names in a directory durable.
func (d *Dir) sync(path string) error {
	if err := d.fault("sync dir", path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type writer struct {
	dir      *Dir
	path     string
	file     *os.File
	checksum hash.Hash
}

func (w *writer) create() (err error) {
	if err := w.dir.fault("create", w.path); err != nil {
		return err
	}
	w.file, err = os.OpenFile(w.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	return err
}

func (w *writer) write(b []byte) error {
	if err := w.dir.fault("write", w.path); err != nil {
		return err
	}
	_, err := w.file.Write(b)
	return err
}

// writeImage writes all of a file. Each chunk is written while it is in the cache from hashing it.
func (w *writer) writeImage(ctx context.Context, i Image) error {
	h := Header{Name: i.Name, Layout: i.Layout, Order: byteOrder(), Meta: int64(len(i.Meta)), Data: int64(len(i.Data)), Tensors: i.Tensors}
	if i.Parts != nil {
		h.Parts = i.Parts.id()
		for _, t := range i.Sharded {
			h.Sharded = append(h.Sharded, ShardedTensor(t))
		}
	}
	header, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(header) > maxHeader {
		return fmt.Errorf("a header of %d bytes, at most %d are read", len(header), maxHeader)
	}
	front := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(header)))
	front = append(front, header...)
	for _, b := range [][]byte{front, i.Meta} {
		w.checksum.Write(b)
		if err := w.write(b); err != nil {
			return err
		}
	}
	var hashes []byte
	for at := 0; at < len(i.Data); at += chunkBytes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		chunk := i.Data[at:min(at+chunkBytes, len(i.Data))]
		h := hashOf(chunk)
		hashes = append(hashes, h[:]...)
		if err := w.write(chunk); err != nil {
			return err
		}
	}
	w.checksum.Write(hashes)
	if err := w.write(w.checksum.Sum(hashes)); err != nil {
		return err
	}
	return w.sync()
}

func (w *writer) sync() error {
	if err := w.dir.fault("sync", w.path); err != nil {
		return err
	}
	return w.file.Sync()
}

func hashOf(chunk []byte) [hashBytes]byte { return xxh3.Hash128(chunk).Bytes() }

func byteOrder() string {
	if one := uint16(1); *(*byte)(unsafe.Pointer(&one)) == 1 {
		return "little"
	}
	return "big"
}
