package statesync

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/kernel"
)

// Tensor is a registered range of memory.
type Tensor struct {
	Name, Type string
	Offset     int // in the data of a snapshot
	Memory     []byte
	live       bool // see SetLive
}

// Tensors are the registered tensors. Concatenated in the order of their registration they are the
// data of a snapshot.
type Tensors struct {
	list []Tensor
	size int
}

const (
	// strideBytes is the unit of work of a copying thread: large enough that claiming the next one
	// costs nothing, small enough that a thread which the system has preempted does not delay the
	// rest.
	strideBytes = 4 * ChunkBytes
	// streamBytes is the size from which on copies bypass the caches, because they would not stay
	// there.
	streamBytes = 16 << 20
	// maxCopyThreads is the number of threads beyond which the memory gets no faster.
	maxCopyThreads = 8
)

// Add registers a tensor.
func (t *Tensors) Add(name, typ string, memory []byte) {
	t.list = append(t.list, Tensor{Name: name, Type: typ, Offset: t.size, Memory: memory})
	t.size += len(memory)
}

// All returns the tensors in the order of their registration.
func (t *Tensors) All() []Tensor { return t.list }

// WriteLayout writes the tensors' part of what the members hash as their layout.
func (t *Tensors) WriteLayout(w io.Writer) {
	// Members that hash chunks in different ways must not agree on a layout.
	fmt.Fprintf(w, "marks %x\n", hashOf([]byte("of the same kind")))
	for _, x := range t.list {
		fmt.Fprintf(w, "tensor %q %s %d\n", x.Name, x.Type, len(x.Memory))
	}
}

func (t *Tensors) packAll(data []byte) {
	inParallel(t.size, func(lo, hi int) {
		t.segments(lo, hi-lo, func(at int, memory []byte) { t.copy(data[at:at+len(memory)], memory) })
	})
}

func (t *Tensors) unpackAll(data []byte) {
	inParallel(t.size, func(lo, hi int) { t.unpack(lo, data[lo:hi]) })
}

// equalLive reports whether the live tensors are those in data.
func (t *Tensors) equalLive(data []byte) bool {
	var differ atomic.Bool
	inParallel(t.size, func(lo, hi int) {
		if differ.Load() {
			return
		}
		t.eachSegment(lo, hi-lo, func(x *Tensor, at int, memory []byte) {
			if x.live && !bytes.Equal(memory, data[at:at+len(memory)]) {
				differ.Store(true)
			}
		})
	})
	return !differ.Load()
}

func (t *Tensors) liveBytes() (n int) {
	for _, x := range t.list {
		if x.live {
			n += len(x.Memory)
		}
	}
	return n
}

// unpack copies src to the tensors, beginning at an offset in the data.
func (t *Tensors) unpack(offset int, src []byte) {
	t.segments(offset, len(src), func(at int, memory []byte) { t.copy(memory, src[at-offset:at-offset+len(memory)]) })
}

func (t *Tensors) copy(dst, src []byte) {
	if t.size < streamBytes {
		copy(dst, src)
		return
	}
	kernel.Stream(dst, src)
}

// segments calls f with the memory of n bytes from an offset on, tensor by tensor, and the offset
// of each.
func (t *Tensors) segments(offset, n int, f func(offset int, memory []byte)) {
	t.eachSegment(offset, n, func(_ *Tensor, offset int, memory []byte) { f(offset, memory) })
}

// eachSegment is segments with the tensor.
func (t *Tensors) eachSegment(offset, n int, f func(x *Tensor, offset int, memory []byte)) {
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].Offset+len(t.list[i].Memory) > offset })
	for ; n > 0; i++ {
		segment := t.list[i].Memory[offset-t.list[i].Offset:]
		segment = segment[:min(n, len(segment))]
		f(&t.list[i], offset, segment)
		offset, n = offset+len(segment), n-len(segment)
	}
}

// inParallel calls f for all of [0, size) in units of strideBytes, on several threads.
func inParallel(size int, f func(lo, hi int)) {
	strides := (size + strideBytes - 1) / strideBytes
	threads := min(runtime.GOMAXPROCS(0), strides, maxCopyThreads)
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < strides; i = int(next.Add(1)) - 1 {
			f(i*strideBytes, min((i+1)*strideBytes, size))
		}
	}
	var wg sync.WaitGroup
	for range threads - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
