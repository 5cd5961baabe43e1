package elastic

import (
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/kernel"
)

// All tensors, one after the other in the order of their registration, are one range of bytes: the content of a snapshot.

const (
	// strideBytes is what a thread copies before it takes the next piece: large enough that taking costs nothing, small enough that
	// threads which the system holds up are not waited for.
	strideBytes = 4 * leafBytes
	// beyondCaches is the size of states whose copies do not stay in any cache, so that they are written past them.
	beyondCaches = 16 << 20
	// maxThreads is from where on more threads do not make memory faster.
	maxThreads = 8
)

// load copies what the tensors hold from place at on to dst.
func (s *State) load(dst []byte, at int) {
	s.parts(at, len(dst), func(part []byte) {
		s.copy(dst[:len(part)], part)
		dst = dst[len(part):]
	})
}

// store copies src to the tensors, from place at on.
func (s *State) store(at int, src []byte) {
	s.parts(at, len(src), func(part []byte) {
		s.copy(part, src[:len(part)])
		src = src[len(part):]
	})
}

func (s *State) copy(dst, src []byte) {
	if s.size < beyondCaches {
		copy(dst, src)
		return
	}
	kernel.Stream(dst, src)
}

// parts calls f with the memory of n bytes from place at on, tensor by tensor.
func (s *State) parts(at, n int, f func(part []byte)) {
	i := sort.Search(len(s.tensors), func(i int) bool { return s.tensors[i].at+len(s.tensors[i].memory) > at })
	for ; n > 0; i++ {
		part := s.tensors[i].memory[at-s.tensors[i].at:]
		part = part[:min(n, len(part))]
		f(part)
		at, n = at+len(part), n-len(part)
	}
}

// inStrides has f work on all of [0, size) in pieces of strideBytes, on as many threads as help.
func inStrides(size int, f func(lo, hi int)) {
	strides := (size + strideBytes - 1) / strideBytes
	threads := min(runtime.GOMAXPROCS(0), strides, maxThreads)
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < strides; i = int(next.Add(1)) - 1 {
			f(i*strideBytes, min((i+1)*strideBytes, size))
		}
	}
	var wait sync.WaitGroup
	for range threads - 1 {
		wait.Go(work)
	}
	work()
	wait.Wait()
}
