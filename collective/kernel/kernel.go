// Package kernel combines two buffers element by element: the arithmetic of an
// allreduce, in plain Go for every architecture.
//
// Rules for special values, which are those of Go and IEEE 754:
//
//   - Sum: float addition, so a NaN anywhere makes the result NaN and Inf + -Inf
//     is NaN. Integers wrap around.
//   - Min, Max: a NaN on either side makes the result NaN; -0 is less than +0.
//     Which NaN (its payload bits) is not promised.
//   - Divide: floats are multiplied by 1/n, computed once in their own type;
//     integers are divided and truncated toward zero.
//
// Subnormal numbers are kept (Go never flushes them to zero).
package kernel

// Number is what the kernels compute with.
type Number interface {
	~float32 | ~float64 | ~int32 | ~int64
}

// lane is the number of elements per turn. Going through a pointer to an array
// leaves the compiler one bounds check per turn: about twice as fast as the plain
// loop.
const lane = 8

// Sum adds src to dst. src must be at least as long as dst; it panics otherwise.
func Sum[T Number](dst, src []T) {
	src = src[:len(dst)]
	for len(dst) >= lane {
		d, s := (*[lane]T)(dst), (*[lane]T)(src)
		d[0] += s[0]
		d[1] += s[1]
		d[2] += s[2]
		d[3] += s[3]
		d[4] += s[4]
		d[5] += s[5]
		d[6] += s[6]
		d[7] += s[7]
		dst, src = dst[lane:], src[lane:]
	}
	for i := range dst {
		dst[i] += src[i]
	}
}

// Min stores the lesser of each pair in dst. src must be at least as long as dst.
func Min[T Number](dst, src []T) {
	src = src[:len(dst)]
	for len(dst) >= lane {
		d, s := (*[lane]T)(dst), (*[lane]T)(src)
		d[0] = min(d[0], s[0])
		d[1] = min(d[1], s[1])
		d[2] = min(d[2], s[2])
		d[3] = min(d[3], s[3])
		d[4] = min(d[4], s[4])
		d[5] = min(d[5], s[5])
		d[6] = min(d[6], s[6])
		d[7] = min(d[7], s[7])
		dst, src = dst[lane:], src[lane:]
	}
	for i := range dst {
		dst[i] = min(dst[i], src[i])
	}
}

// Max stores the greater of each pair in dst. src must be at least as long as dst.
func Max[T Number](dst, src []T) {
	src = src[:len(dst)]
	for len(dst) >= lane {
		d, s := (*[lane]T)(dst), (*[lane]T)(src)
		d[0] = max(d[0], s[0])
		d[1] = max(d[1], s[1])
		d[2] = max(d[2], s[2])
		d[3] = max(d[3], s[3])
		d[4] = max(d[4], s[4])
		d[5] = max(d[5], s[5])
		d[6] = max(d[6], s[6])
		d[7] = max(d[7], s[7])
		dst, src = dst[lane:], src[lane:]
	}
	for i := range dst {
		dst[i] = max(dst[i], src[i])
	}
}

// Divide turns a sum of n contributions into their average, in place. n >= 1.
func Divide[T Number](dst []T, n int) {
	if !IsFloat[T]() {
		by := T(n)
		for i := range dst {
			dst[i] /= by
		}
		return
	}
	factor := 1 / T(n)
	for len(dst) >= lane {
		d := (*[lane]T)(dst)
		d[0] *= factor
		d[1] *= factor
		d[2] *= factor
		d[3] *= factor
		d[4] *= factor
		d[5] *= factor
		d[6] *= factor
		d[7] *= factor
		dst = dst[lane:]
	}
	for i := range dst {
		dst[i] *= factor
	}
}

// IsFloat tells floats from integers, also for named types, which a type switch
// on any(T) would miss.
func IsFloat[T Number]() bool {
	one, two := T(1), T(2)
	return one/two != 0
}
