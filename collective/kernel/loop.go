package kernel

// unroll is the number of elements per iteration. A pointer to an array leaves the compiler one
// bounds check per iteration: that is about twice as fast as the plain loop.
const unroll = 8

func sum[T number](dst, a, b []T) {
	for len(dst) >= unroll {
		d, x, y := (*[unroll]T)(dst), (*[unroll]T)(a), (*[unroll]T)(b)
		d[0] = x[0] + y[0]
		d[1] = x[1] + y[1]
		d[2] = x[2] + y[2]
		d[3] = x[3] + y[3]
		d[4] = x[4] + y[4]
		d[5] = x[5] + y[5]
		d[6] = x[6] + y[6]
		d[7] = x[7] + y[7]
		dst, a, b = dst[unroll:], a[unroll:], b[unroll:]
	}
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func product[T number](dst, a, b []T) {
	for len(dst) >= unroll {
		d, x, y := (*[unroll]T)(dst), (*[unroll]T)(a), (*[unroll]T)(b)
		d[0] = x[0] * y[0]
		d[1] = x[1] * y[1]
		d[2] = x[2] * y[2]
		d[3] = x[3] * y[3]
		d[4] = x[4] * y[4]
		d[5] = x[5] * y[5]
		d[6] = x[6] * y[6]
		d[7] = x[7] * y[7]
		dst, a, b = dst[unroll:], a[unroll:], b[unroll:]
	}
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func least[T number](dst, a, b []T) {
	for len(dst) >= unroll {
		d, x, y := (*[unroll]T)(dst), (*[unroll]T)(a), (*[unroll]T)(b)
		d[0] = min(x[0], y[0])
		d[1] = min(x[1], y[1])
		d[2] = min(x[2], y[2])
		d[3] = min(x[3], y[3])
		d[4] = min(x[4], y[4])
		d[5] = min(x[5], y[5])
		d[6] = min(x[6], y[6])
		d[7] = min(x[7], y[7])
		dst, a, b = dst[unroll:], a[unroll:], b[unroll:]
	}
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

func greatest[T number](dst, a, b []T) {
	for len(dst) >= unroll {
		d, x, y := (*[unroll]T)(dst), (*[unroll]T)(a), (*[unroll]T)(b)
		d[0] = max(x[0], y[0])
		d[1] = max(x[1], y[1])
		d[2] = max(x[2], y[2])
		d[3] = max(x[3], y[3])
		d[4] = max(x[4], y[4])
		d[5] = max(x[5], y[5])
		d[6] = max(x[6], y[6])
		d[7] = max(x[7], y[7])
		dst, a, b = dst[unroll:], a[unroll:], b[unroll:]
	}
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}
