package main

// The three products of a layer, row-major. Inner loops run over one row at unit stride. multiply
// and multiplyLeft take four rows at once, so that each element of the result is loaded and stored
// once for four products.

// axpy4 adds a0*x0 + a1*x1 + a2*x2 + a3*x3 to y.
func axpy4(y, x0, x1, x2, x3 []float32, a0, a1, a2, a3 float32) {
	n := len(y)
	x0, x1, x2, x3 = x0[:n], x1[:n], x2[:n], x3[:n]
	for i := range y {
		y[i] += a0*x0[i] + a1*x1[i] + a2*x2[i] + a3*x3[i]
	}
}

// multiply adds a (m x k) times b (k x n) to c (m x n).
func multiply(c, a, b []float32, m, k, n int) {
	for i := range m {
		y, w := c[i*n:(i+1)*n], a[i*k:(i+1)*k]
		j := 0
		for ; j+4 <= k; j += 4 {
			if w[j] == 0 && w[j+1] == 0 && w[j+2] == 0 && w[j+3] == 0 {
				continue // most of a picture is black, and half of the hidden units are zero
			}
			axpy4(y, b[j*n:], b[(j+1)*n:], b[(j+2)*n:], b[(j+3)*n:], w[j], w[j+1], w[j+2], w[j+3])
		}
		for ; j < k; j++ {
			for l, v := range b[j*n : (j+1)*n] {
				y[l] += w[j] * v
			}
		}
	}
}

// multiplyLeft adds the transpose of a (m x k) times b (m x n) to c (k x n): the gradient of
// weights.
func multiplyLeft(c, a, b []float32, m, k, n int) {
	i := 0
	for ; i+4 <= m; i += 4 {
		for j := range k {
			w0, w1, w2, w3 := a[i*k+j], a[(i+1)*k+j], a[(i+2)*k+j], a[(i+3)*k+j]
			if w0 == 0 && w1 == 0 && w2 == 0 && w3 == 0 {
				continue
			}
			axpy4(c[j*n:(j+1)*n], b[i*n:], b[(i+1)*n:], b[(i+2)*n:], b[(i+3)*n:], w0, w1, w2, w3)
		}
	}
	for ; i < m; i++ {
		for j := range k {
			if w := a[i*k+j]; w != 0 {
				y := c[j*n : (j+1)*n]
				for l, v := range b[i*n : (i+1)*n] {
					y[l] += w * v
				}
			}
		}
	}
}

// multiplyRight adds a (m x n) times the transpose of b (k x n) to c (m x k): the gradient of
// inputs.
func multiplyRight(c, a, b []float32, m, n, k int) {
	for i := range m {
		x := a[i*n : (i+1)*n]
		for j := range k {
			var sum float32
			y := b[j*n : (j+1)*n]
			for l, v := range x {
				sum += v * y[l]
			}
			c[i*k+j] += sum
		}
	}
}
