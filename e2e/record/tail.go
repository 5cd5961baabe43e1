package record

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Tail counts steps while they are made, without reading everything again.
type Tail struct {
	Dir  string
	read map[string]int64
}

// Poll returns how many steps the workers have recorded since the last call; each worker records
// its own.
func (t *Tail) Poll() (int, error) {
	files, err := filepath.Glob(filepath.Join(t.Dir, "*.rec"))
	if err != nil {
		return 0, err
	}
	if t.read == nil {
		t.read = map[string]int64{}
	}
	steps := 0
	for _, f := range files {
		b, err := from(f, t.read[f])
		if err != nil {
			return 0, err
		}
		b = b[:bytes.LastIndexByte(b, '\n')+1]
		t.read[f] += int64(len(b))
		for line := range bytes.Lines(b) {
			if line[0] == 'D' {
				steps++
			}
		}
	}
	return steps, nil
}

func from(file string, offset int64) (b []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}
