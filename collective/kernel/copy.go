package kernel

import "unsafe"

const (
	line = 64 // bytes of a cache line, and of the widest vector
	// beyondCache is the size from which a copy evicts more than it is worth to keep.
	beyondCache = 1 << 20
	// streamPiece is to bytes what piece is to elements.
	streamPiece = 1 << 20
)

// Copy copies src to dst, which do not overlap and are of one length. From 1 MiB on it
// stores past the caches, which saves reading what is overwritten.
func Copy(dst, src []byte) {
	checkLength(len(dst), Uint8, src)
	if len(dst) < beyondCache {
		copy(dst, src)
		return
	}
	chosen.streamAll(dst, src)
}

// Stream is Copy past the caches at any size: for one piece of something much larger
// than the caches, of which nobody reads the copy soon.
func Stream(dst, src []byte) {
	checkLength(len(dst), Uint8, src)
	chosen.streamAll(dst, src)
}

func (v *variant) streamAll(dst, src []byte) {
	if v.stream == nil || len(dst) < 2*line {
		copy(dst, src)
		return
	}
	// The assembly stores whole lines: what is before the first one goes ahead.
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % line)
	copy(dst[:head], src[:head])
	dst, src = dst[head:], src[head:]
	for len(dst) > 0 {
		n := min(streamPiece, len(dst))
		done := v.stream(unsafe.SliceData(dst), unsafe.SliceData(src), n)
		copy(dst[done:n], src[done:n])
		dst, src = dst[n:], src[n:]
	}
}
