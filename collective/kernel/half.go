package kernel

import "math"

const (
	infinity16 = 0x7c00
	nan16      = 0x7e00
	nanB16     = 0x7fc0
)

// fromFloat16 is exact.
func fromFloat16(h uint16) float32 {
	sign, rest := uint32(h>>15)<<31, uint32(h&0x7fff)
	switch {
	case rest > infinity16:
		return math.Float32frombits(sign | 0x7fc00000 | rest<<13)
	case rest == infinity16:
		return math.Float32frombits(sign | 0x7f800000)
	case rest < 1<<10: // subnormal: so many of the least
		return math.Float32frombits(sign | math.Float32bits(float32(rest)*0x1p-24))
	}
	return math.Float32frombits(sign | rest<<13 + (127-15)<<23)
}

// toFloat16 rounds to nearest, ties to even.
func toFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, bits := uint16(bits>>31)<<15, bits&0x7fffffff
	switch size := math.Float32frombits(bits); {
	case size != size:
		return sign | nan16
	case size >= 65520: // half way from the greatest to the next, which is not there
		return sign | infinity16
	case size < 0x1p-14:
		// Among numbers near 1/2, a float32 has the steps of a subnormal float16: the sum rounds.
		return sign | uint16(math.Float32bits(size+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((roundAt(bits, 13)-(127-15)<<23)>>13)
}

func fromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBFloat16 rounds to nearest, ties to even.
func toBFloat16(f float32) uint16 {
	if f != f {
		return nanB16
	}
	return uint16(roundAt(math.Float32bits(f), 16) >> 16)
}

// roundAt rounds bits up if what is below the given bit is more than a half, or a half
// and the bit is set. A carry goes into the exponent, which is right.
func roundAt(bits uint32, bit int) uint32 {
	return bits + 1<<(bit-1) - 1 + bits>>bit&1
}

// widen makes float32 of src in plain Go.
func widen(from Type, dst, src []byte) {
	var wide [chunk]float32
	var half [chunk]uint16
	rawWide, rawHalf := raw(wide[:]), raw(half[:])
	for len(src) > 0 {
		n := copy(rawHalf, src)
		widenChunk(from, wide[:n/2], half[:n/2])
		copy(dst, rawWide[:2*n])
		dst, src = dst[2*n:], src[n:]
	}
}

func widenChunk(from Type, dst []float32, src []uint16) {
	dst = dst[:len(src)]
	if from == Float16 {
		for i, h := range src {
			dst[i] = fromFloat16(h)
		}
		return
	}
	for i, h := range src {
		dst[i] = fromBFloat16(h)
	}
}

// narrow rounds the float32 of src in plain Go.
func narrow(to Type, dst, src []byte) {
	var wide [chunk]float32
	var half [chunk]uint16
	rawWide, rawHalf := raw(wide[:]), raw(half[:])
	for len(src) > 0 {
		n := copy(rawWide, src)
		narrowChunk(to, half[:n/4], wide[:n/4])
		copy(dst, rawHalf[:n/2])
		dst, src = dst[n/2:], src[n:]
	}
}

func narrowChunk(to Type, dst []uint16, src []float32) {
	dst = dst[:len(src)]
	if to == Float16 {
		for i, f := range src {
			dst[i] = toFloat16(f)
		}
		return
	}
	for i, f := range src {
		dst[i] = toBFloat16(f)
	}
}

// combineHalf widens a chunk of a and b, combines these, and rounds the result.
func combineHalf(t Type, op Op, dst, a, b []byte) {
	var x, y [chunk]float32
	rawX, rawY := raw(x[:]), raw(y[:])
	for len(dst) > 0 {
		n := min(len(dst)/2, chunk)
		widen(t, rawX, a[:2*n])
		widen(t, rawY, b[:2*n])
		apply(op, x[:n], x[:n], y[:n])
		narrow(t, dst[:2*n], rawX[:4*n])
		dst, a, b = dst[2*n:], a[2*n:], b[2*n:]
	}
}

// reduceWiden widens a chunk of src and combines it with dst.
func reduceWiden(from Type, op Op, dst, src []byte) {
	var y [chunk]float32
	rawY := raw(y[:])
	for len(src) > 0 {
		n := min(len(src)/2, chunk)
		widen(from, rawY, src[:2*n])
		combineAs[float32](op, dst[:4*n], dst[:4*n], rawY[:4*n])
		dst, src = dst[4*n:], src[2*n:]
	}
}

func scaleHalf(t Type, dst []byte, factor float32) {
	var x [chunk]float32
	rawX := raw(x[:])
	for len(dst) > 0 {
		n := min(len(dst)/2, chunk)
		widen(t, rawX, dst[:2*n])
		for i := range x[:n] {
			x[i] *= factor
		}
		narrow(t, dst[:2*n], rawX[:4*n])
		dst = dst[2*n:]
	}
}
