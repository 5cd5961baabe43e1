package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
)

var (
	// ErrCorrupt says that the file is torn or damaged, or is not a checkpoint.
	ErrCorrupt = errors.New("the checkpoint is damaged")
	// ErrOther says that the checkpoint is intact, but of a program with another state.
	ErrOther = errors.New("the checkpoint is of another program")
	// ErrUntrusted says that another user may have written the file. A Python program unpickles
	// what is in a checkpoint, which can run any code.
	ErrUntrusted = errors.New("the checkpoint may be another user's work")
)

// Read reads a checkpoint into data, and checks all of it. The layout and the length of data must
// be those with which it was written. The file must belong to this user or to root, and only its
// owner may have the permission to write it. On an error the content of data is undefined.
func (d *Dir) Read(n Name, layout string, data []byte) (meta []byte, err error) {
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("read checkpoint %v: %w", n, err)
		if errors.Is(err, ErrCorrupt) {
			d.Refuse(n)
		}
	}()
	file, c, err := d.open(n)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	switch {
	case c.Layout != layout || c.Data != int64(len(data)):
		return nil, fmt.Errorf("%w: %s", ErrOther, c.describe())
	case c.Order != byteOrder():
		return nil, fmt.Errorf("%w: its numbers are in %s-endian order", ErrOther, c.Order)
	}
	if err := c.read(file, data); err != nil {
		return nil, err
	}
	return c.meta, nil
}

// Describe returns what a checkpoint says of itself, by the rules of Read, and without reading its
// data.
func (d *Dir) Describe(n Name) (Header, error) {
	file, c, err := d.open(n)
	if err != nil {
		return Header{}, fmt.Errorf("read checkpoint %v: %w", n, err)
	}
	return c.Header, file.Close()
}

func (d *Dir) open(n Name) (file *os.File, c content, err error) {
	if file, err = os.Open(d.Path(n)); err != nil {
		return nil, c, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, c, err
	}
	if err := trusted(info); err != nil {
		return nil, c, fmt.Errorf("%w, see %s", err, d.Path(n))
	}
	if c, err = open(file, info.Size()); err == nil && c.Name != n {
		err = corrupt("its header names %v", c.Name)
	}
	return file, c, err
}

// Refuse makes a checkpoint count as damaged: it is not kept in place of another one.
func (d *Dir) Refuse(n Name) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.corrupt[n] = true
}

// content is a checkpoint whose checksum is correct.
type content struct {
	Header
	meta, hashes []byte
	offset       int64 // of data
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// open reads header, metadata and chunk hashes, and verifies the checksum over them.
func open(file io.ReaderAt, size int64) (c content, err error) {
	front := make([]byte, len(magic)+4)
	if _, err := file.ReadAt(front, 0); err != nil || !bytes.HasPrefix(front, []byte(magic)) {
		return c, damaged(err, "it does not begin with %q", magic)
	}
	n := int64(binary.LittleEndian.Uint32(front[len(magic):]))
	if n > min(maxHeader, size) {
		return c, corrupt("its header has %d bytes", n)
	}
	front = append(front, make([]byte, n)...)
	if _, err := file.ReadAt(front, 0); err != nil {
		return c, damaged(err, "its header is cut off")
	}
	if err := json.Unmarshal(front[len(magic)+4:], &c.Header); err != nil {
		return c, corrupt("its header is no JSON: %v", err)
	}
	if c.Meta < 0 || c.Data < 0 || c.Meta > size || c.Data > size {
		return c, corrupt("%d bytes of meta and %d of data in a file of %d", c.Meta, c.Data, size)
	}
	c.offset = int64(len(front)) + c.Meta
	if want := c.offset + c.Data + c.chunks()*hashBytes + sha256.Size; size != want {
		return c, corrupt("it has %d bytes, not %d", size, want)
	}
	c.meta = make([]byte, c.Meta)
	tail := make([]byte, c.chunks()*hashBytes+sha256.Size)
	if _, err := io.ReadFull(io.NewSectionReader(file, int64(len(front)), c.Meta), c.meta); err != nil {
		return c, damaged(err, "its meta is cut off")
	}
	if _, err := file.ReadAt(tail, c.offset+c.Data); err != nil {
		return c, damaged(err, "its end is cut off")
	}
	c.hashes = tail[:c.chunks()*hashBytes]
	checksum := sha256.New()
	for _, b := range [][]byte{front, c.meta, c.hashes} {
		checksum.Write(b)
	}
	if !bytes.Equal(checksum.Sum(nil), tail[len(c.hashes):]) {
		return c, corrupt("its checksum does not match")
	}
	return c, nil
}

func (c *content) chunks() int64 { return (c.Data + chunkBytes - 1) / chunkBytes }

// damaged distinguishes a file that is too short from a disk that cannot be read.
func damaged(err error, format string, args ...any) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return corrupt(format, args...)
}

// maxReaders is the number of chunks that are read at a time.
const maxReaders = 8

func (c *content) read(file io.ReaderAt, data []byte) error {
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(min(maxReaders, runtime.GOMAXPROCS(0)))
	for i := range c.chunks() {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			lo := i * chunkBytes
			return c.readChunk(file, i, data[lo:min(lo+chunkBytes, c.Data)])
		})
	}
	return g.Wait()
}

// readChunk reads chunk i of the data, and compares it with its hash.
func (c *content) readChunk(file io.ReaderAt, i int64, chunk []byte) error {
	if _, err := file.ReadAt(chunk, c.offset+i*chunkBytes); err != nil {
		return damaged(err, "%v", err)
	}
	if h := hashOf(chunk); !bytes.Equal(h[:], c.hashes[i*hashBytes:(i+1)*hashBytes]) {
		return corrupt("chunk %d does not match its hash", i)
	}
	return nil
}

func (c *content) describe() string {
	s := fmt.Sprintf("it holds %d bytes in %d tensors", c.Data, len(c.Tensors))
	for i, p := range c.Tensors {
		if i == 8 {
			return s + " ..."
		}
		s += fmt.Sprintf(" %s(%s, %d)", p.Name, p.Type, p.Bytes)
	}
	return s
}
