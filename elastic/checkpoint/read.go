package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

var (
	// ErrCorrupt says that the file is torn or damaged, or is none of ours.
	ErrCorrupt = errors.New("the checkpoint is damaged")
	// ErrOther says that the checkpoint is whole, but of a program with another state.
	ErrOther = errors.New("the checkpoint is of another program")
)

// Read reads a checkpoint into data, and checks all of it. Layout and the length of data must be those that it was written with. On an
// error data holds anything.
func (f *Dir) Read(n Name, layout string, data []byte) (meta []byte, err error) {
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("read checkpoint %v: %w", n, err)
		if errors.Is(err, ErrCorrupt) {
			f.mu.Lock()
			f.bad[n] = true
			f.mu.Unlock()
		}
	}()
	file, err := os.Open(f.Path(n))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	c, err := open(file, info.Size())
	switch {
	case err != nil:
		return nil, err
	case c.Name != n:
		return nil, corrupt("it is %v by what it says", c.Name)
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

// content is a checkpoint whose seal is right.
type content struct {
	Head
	meta, marks []byte
	at          int64 // where data begins
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// open reads all but the data and checks the seal over it.
func open(file io.ReaderAt, size int64) (c content, err error) {
	front := make([]byte, len(magic)+4)
	if _, err := file.ReadAt(front, 0); err != nil || !bytes.HasPrefix(front, []byte(magic)) {
		return c, damaged(err, "it does not begin with %q", magic)
	}
	n := int64(binary.LittleEndian.Uint32(front[len(magic):]))
	if n > min(maxHead, size) {
		return c, corrupt("its head has %d bytes", n)
	}
	front = append(front, make([]byte, n)...)
	if _, err := file.ReadAt(front, 0); err != nil {
		return c, damaged(err, "its head is cut off")
	}
	if err := json.Unmarshal(front[len(magic)+4:], &c.Head); err != nil {
		return c, corrupt("its head is no JSON: %v", err)
	}
	if c.Meta < 0 || c.Data < 0 || c.Meta > size || c.Data > size {
		return c, corrupt("%d bytes of meta and %d of data in a file of %d", c.Meta, c.Data, size)
	}
	c.at = int64(len(front)) + c.Meta
	if want := c.at + c.Data + c.blocks()*markBytes + sha256.Size; size != want {
		return c, corrupt("it has %d bytes, not %d", size, want)
	}
	c.meta = make([]byte, c.Meta)
	tail := make([]byte, c.blocks()*markBytes+sha256.Size)
	if _, err := io.ReadFull(io.NewSectionReader(file, int64(len(front)), c.Meta), c.meta); err != nil {
		return c, damaged(err, "its meta is cut off")
	}
	if _, err := file.ReadAt(tail, c.at+c.Data); err != nil {
		return c, damaged(err, "its end is cut off")
	}
	c.marks = tail[:c.blocks()*markBytes]
	seal := sha256.New()
	for _, b := range [][]byte{front, c.meta, c.marks} {
		seal.Write(b)
	}
	if !bytes.Equal(seal.Sum(nil), tail[len(c.marks):]) {
		return c, corrupt("its seal does not match")
	}
	return c, nil
}

func (c *content) blocks() int64 { return (c.Data + blockBytes - 1) / blockBytes }

// damaged tells the end of a file from a disk that cannot be read.
func damaged(err error, format string, args ...any) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return corrupt(format, args...)
}

// maxReaders is how many blocks are read at a time.
const maxReaders = 8

// read reads the data and checks its blocks.
func (c *content) read(file io.ReaderAt, data []byte) error {
	var next atomic.Int64
	var wait sync.WaitGroup
	var once sync.Once
	var failed error
	for range min(maxReaders, runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= c.blocks() {
					return
				}
				lo := i * blockBytes
				block := data[lo:min(lo+blockBytes, c.Data)]
				_, err := file.ReadAt(block, c.at+lo)
				if m := mark(block); err == nil && !bytes.Equal(m[:], c.marks[i*markBytes:(i+1)*markBytes]) {
					err = corrupt("block %d does not match its hash", i)
				}
				if err != nil {
					once.Do(func() { failed = damaged(err, "%v", err) })
					next.Store(c.blocks()) // the others may stop
					return
				}
			}
		})
	}
	wait.Wait()
	return failed
}

// describe names what is in a checkpoint.
func (c *content) describe() string {
	s := fmt.Sprintf("it holds %d bytes in %d tensors", c.Data, len(c.Parts))
	for i, p := range c.Parts {
		if i == 8 {
			return s + " ..."
		}
		s += fmt.Sprintf(" %s(%s, %d)", p.Name, p.Type, p.Bytes)
	}
	return s
}
