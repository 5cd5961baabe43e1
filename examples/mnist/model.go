package main

import (
	"math"
	"math/rand/v2"
)

const hidden = 128

// Offsets of the parts of the flat parameter vector.
const (
	atB1       = pixels * hidden
	atW2       = atB1 + hidden
	atB2       = atW2 + hidden*classes
	parameters = atB2 + classes
)

// model is the network. All parameters are one vector, so that one allreduce and one registered
// tensor carry them.
type model struct {
	weights []float32
	// Work space for one batch, reused.
	x, h, z, dh []float32
}

// newModel returns a network with random weights (He et al. 2015: variance 2 / inputs).
func newModel(seed uint64) *model {
	m := &model{weights: make([]float32, parameters)}
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range m.weights[:atB1] {
		m.weights[i] = float32(r.NormFloat64() * math.Sqrt(2.0/pixels))
	}
	for i := atW2; i < atB2; i++ {
		m.weights[i] = float32(r.NormFloat64() * math.Sqrt(2.0/hidden))
	}
	return m
}

func reuse(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n)
	}
	*buf = (*buf)[:n]
	return *buf
}

// forward computes the scores of each picture; x holds n pictures.
func (m *model) forward(n int) {
	h, z := reuse(&m.h, n*hidden), reuse(&m.z, n*classes)
	for i := range n {
		copy(h[i*hidden:], m.weights[atB1:atW2])
		copy(z[i*classes:], m.weights[atB2:])
	}
	multiply(h, m.x, m.weights[:atB1], n, pixels, hidden)
	for i, v := range h {
		h[i] = max(v, 0)
	}
	multiply(z, h, m.weights[atW2:atB2], n, hidden, classes)
}

// gather copies pictures into the work space.
func (m *model) gather(d digits, indices []int) {
	x := reuse(&m.x, len(indices)*pixels)
	for i, index := range indices {
		copy(x[i*pixels:], d.images[index*pixels:(index+1)*pixels])
	}
}

// backward returns the mean loss over the samples and writes its gradient to grads.
func (m *model) backward(d digits, indices []int, grads []float32) (loss float64) {
	clear(grads)
	n := len(indices)
	if n == 0 {
		return 0
	}
	m.gather(d, indices)
	m.forward(n)
	dz := m.z // the gradient overwrites the scores
	for i, index := range indices {
		loss += softmax(dz[i*classes:(i+1)*classes], int(d.labels[index]))
	}
	for i := range dz {
		dz[i] /= float32(n)
	}
	multiplyLeft(grads[atW2:atB2], m.h, dz, n, hidden, classes)
	addRows(grads[atB2:], dz)
	dh := reuse(&m.dh, n*hidden)
	clear(dh)
	multiplyRight(dh, dz, m.weights[atW2:atB2], n, classes, hidden)
	for i, v := range m.h {
		if v == 0 {
			dh[i] = 0
		}
	}
	multiplyLeft(grads[:atB1], m.x, dh, n, pixels, hidden)
	addRows(grads[atB1:atW2], dh)
	return loss / float64(n)
}

// softmax turns scores into the gradient of the cross-entropy and returns the loss.
func softmax(z []float32, label int) float64 {
	top := z[0]
	for _, v := range z {
		top = max(top, v)
	}
	var sum float64
	for _, v := range z {
		sum += math.Exp(float64(v - top))
	}
	loss := math.Log(sum) - float64(z[label]-top)
	for i, v := range z {
		z[i] = float32(math.Exp(float64(v-top)) / sum)
	}
	z[label]--
	return loss
}

func addRows(to, rows []float32) {
	for ; len(rows) > 0; rows = rows[len(to):] {
		for i := range to {
			to[i] += rows[i]
		}
	}
}

// correct counts the correctly classified pictures of [from, to).
func (m *model) correct(d digits, from, to int) (count int) {
	const batch = 100
	for ; from < to; from += batch {
		n := min(batch, to-from)
		x := reuse(&m.x, n*pixels)
		copy(x, d.images[from*pixels:])
		m.forward(n)
		for i := range n {
			z, best := m.z[i*classes:(i+1)*classes], 0
			for c := range z {
				if z[c] > z[best] {
					best = c
				}
			}
			if best == int(d.labels[from+i]) {
				count++
			}
		}
	}
	return count
}
