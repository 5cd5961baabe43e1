package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// PartFile is an open file with parts.
type PartFile struct {
	Rank, World int // of the one that has written it
	file        *os.File
	parts       []storedPart
}

// OpenPart opens a file of a set, and checks its header. The rules of Read for its owner hold.
func (d *Dir) OpenPart(s Set, name string) (f *PartFile, err error) {
	for _, suffix := range []string{suffixWhole, suffixWriting} {
		f, err = d.openPart(s, filepath.Join(d.path, s.folder(suffix), name))
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return f, err
}

func (d *Dir) openPart(s Set, path string) (f *PartFile, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if err := trusted(info); err != nil {
		return nil, err
	}
	h, parts, err := decodeParts(file, info.Size(), s)
	return &PartFile{Rank: h.Rank, World: h.World, file: file, parts: parts}, err
}

// Close closes the file.
func (f *PartFile) Close() error { return f.file.Close() }

// Parts describes the parts in the file. They have no memory.
func (f *PartFile) Parts() []Part {
	parts := make([]Part, len(f.parts))
	for i, p := range f.parts {
		parts[i] = p.Part
	}
	return parts
}

// Read reads a box within a part, and checks all that it reads.
func (f *PartFile) Read(part int, p Part) error {
	stored := &f.parts[part]
	r := chunkReader{f: f, part: stored, number: -1}
	return r.read(p)
}

func (f *PartFile) verify() error {
	for i := range f.parts {
		r := chunkReader{f: f, part: &f.parts[i], number: -1}
		for n := range len(r.part.hashes) / hashBytes {
			if err := r.load(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunkReader reads chunks of a part in ascending order.
type chunkReader struct {
	f      *PartFile
	part   *storedPart
	buffer []byte
	number int // of the chunk in buffer; -1 = none
}

func (r *chunkReader) load(n int) error {
	size := min(chunkBytes, r.part.bytes()-n*chunkBytes)
	if cap(r.buffer) < size {
		r.buffer = make([]byte, size)
	}
	r.buffer, r.number = r.buffer[:size], n
	if _, err := r.f.file.ReadAt(r.buffer, r.part.at+int64(n)*chunkBytes); err != nil && !errors.Is(err, io.EOF) {
		return err
	} else if h := hashOf(r.buffer); err != nil || string(h[:]) != string(r.part.hashes[n*hashBytes:(n+1)*hashBytes]) {
		return corrupt("%s: chunk %d of %s does not match its hash", r.f.file.Name(), n, r.part.Tensor.Name)
	}
	return nil
}

func (r *chunkReader) read(p Part) (err error) {
	runs := func(run reshard.Run) {
		for at := run.At; at < run.At+run.Bytes && err == nil; {
			n := at / chunkBytes
			if n != r.number {
				err = r.load(n)
			}
			if err == nil {
				at += copy(p.Memory[run.In+at-run.At:run.In+run.Bytes], r.buffer[at-n*chunkBytes:])
			}
		}
	}
	reshard.Runs(p.Box, r.part.Box, p.Box, p.Tensor.Width, runs)
	return err
}
