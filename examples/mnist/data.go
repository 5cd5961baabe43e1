package main

import (
	"compress/gzip"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

//go:embed data/*.gz
var embedded embed.FS

const (
	pixels  = 28 * 28
	classes = 10
)

// digits is a set of labelled pictures.
type digits struct {
	images []float32 // pixels of each, 0 to 1
	labels []uint8
}

func (d digits) len() int { return len(d.labels) }

// load reads the training and the test part from a directory; empty = from the binary.
func load(dir string) (train, test digits, err error) {
	var from fs.FS
	if dir == "" {
		if from, err = fs.Sub(embedded, "data"); err != nil {
			return train, test, err
		}
	} else {
		from = os.DirFS(dir)
	}
	if train, err = part(from, "train"); err != nil {
		return train, test, err
	}
	test, err = part(from, "t10k")
	return train, test, err
}

func part(from fs.FS, name string) (digits, error) {
	shape, raw, err := readIDX(from, name+"-images-idx3-ubyte.gz", 3)
	if err != nil {
		return digits{}, err
	}
	if shape[1]*shape[2] != pixels {
		return digits{}, fmt.Errorf("%s: pictures of %d x %d, not 28 x 28", name, shape[1], shape[2])
	}
	count, labels, err := readIDX(from, name+"-labels-idx1-ubyte.gz", 1)
	if err != nil {
		return digits{}, err
	}
	if count[0] != shape[0] {
		return digits{}, fmt.Errorf("%s: %d pictures but %d labels", name, shape[0], count[0])
	}
	for i, l := range labels {
		if l >= classes {
			return digits{}, fmt.Errorf("%s: label %d is %d, not 0 to 9", name, i, l)
		}
	}
	d := digits{images: make([]float32, len(raw)), labels: labels}
	for i, b := range raw {
		d.images[i] = float32(b) / 255
	}
	return d, nil
}

// maxValues bounds the allocation for a damaged header; MNIST has 47 million values.
const maxValues = 100 << 20

// readIDX reads a gzipped IDX file of bytes: two zero bytes, the type (8 = unsigned byte), the
// number of dimensions, each dimension as a big-endian 32-bit number, then the values
// (http://yann.lecun.com/exdb/mnist/).
func readIDX(from fs.FS, name string, dims int) (shape []int, values []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}()
	f, err := from.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, err
	}
	head := make([]byte, 4+4*dims)
	if _, err := io.ReadFull(z, head); err != nil {
		return nil, nil, err
	}
	if head[0] != 0 || head[1] != 0 || head[2] != 8 || int(head[3]) != dims {
		return nil, nil, fmt.Errorf("not an IDX file of bytes with %d dimensions: starts with % x", dims, head[:4])
	}
	size := 1
	for i := range dims {
		n := int(binary.BigEndian.Uint32(head[4+4*i:]))
		if n < 1 || n > maxValues/size {
			return nil, nil, fmt.Errorf("dimension %d is %d", i, n)
		}
		shape = append(shape, n)
		size *= n
	}
	values = make([]byte, size)
	if _, err := io.ReadFull(z, values); err != nil {
		return nil, nil, err
	}
	// Reading the end also checks gzip's own checksum.
	if n, err := z.Read(head[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("more than %d values: %w", size, err)
	}
	return shape, values, nil
}
