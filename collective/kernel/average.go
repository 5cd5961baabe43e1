package kernel

type float interface {
	float32 | float64
}

// scale multiplies floats in plain Go.
func scale(t Type, dst []byte, factor float64) {
	switch t {
	case Float16, BFloat16:
		scaleHalf(t, dst, float32(factor))
	case Float32:
		scaleAs(dst, float32(factor))
	case Float64:
		scaleAs(dst, factor)
	}
}

func scaleAs[T float](dst []byte, factor T) {
	inChunks(dst, func(s []T) {
		for len(s) >= unroll {
			d := (*[unroll]T)(s)
			d[0] *= factor
			d[1] *= factor
			d[2] *= factor
			d[3] *= factor
			d[4] *= factor
			d[5] *= factor
			d[6] *= factor
			d[7] *= factor
			s = s[unroll:]
		}
		for i := range s {
			s[i] *= factor
		}
	})
}

func divide(t Type, dst []byte, n int64) {
	switch t {
	case Int8:
		divideAs[int8](dst, n)
	case Uint8:
		divideAs[uint8](dst, n)
	case Int16:
		divideAs[int16](dst, n)
	case Int32:
		divideAs[int32](dst, n)
	case Int64:
		divideAs[int64](dst, n)
	}
}

// divideAs computes with int64: n may be too large for T.
func divideAs[T integer](dst []byte, n int64) {
	inChunks(dst, func(s []T) {
		for i := range s {
			s[i] = T(int64(s[i]) / n)
		}
	})
}

// inChunks calls change for all of dst, through a buffer if dst is not aligned.
func inChunks[T number](dst []byte, change func([]T)) {
	if d, aligned := view[T](dst); aligned {
		change(d)
		return
	}
	buf := make([]T, chunk)
	for b := raw(buf); len(dst) > 0; {
		n := copy(b, dst)
		change(buf)
		dst = dst[copy(dst, b[:n]):]
	}
}
