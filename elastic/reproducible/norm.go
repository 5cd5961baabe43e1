package reproducible

import "math"

// Norm returns the 2-norm of gradients that all ranks have, with the same bits on all of them: it
// adds in an order that depends on their number alone. It is NaN if one is.
func Norm(gradients []float32) float64 {
	// Four sums beside each other, because an addition waits for the one before it. The square of a
	// float32 is exact.
	var a, b, c, d float64
	for len(gradients) >= 4 {
		a += square(gradients[0])
		b += square(gradients[1])
		c += square(gradients[2])
		d += square(gradients[3])
		gradients = gradients[4:]
	}
	for _, g := range gradients {
		a += square(g)
	}
	return math.Sqrt((a + b) + (c + d))
}

func square(g float32) float64 { return float64(g) * float64(g) }

// ClipNorm scales gradients so that their 2-norm is at most most; it returns what it was. It does
// nothing if the norm is NaN.
func ClipNorm(gradients []float32, most float64) (before float64) {
	before = Norm(gradients)
	if before > most {
		scale(gradients, most/before)
	}
	return before
}
