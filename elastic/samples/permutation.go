package samples

import (
	"math/bits"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// rounds of the Feistel network. Four are enough for a pseudo-random permutation with an ideal
// round function (Luby and Rackoff 1988); this one is a cheap mixer, hence two more.
const rounds = 6

// permutation is a bijection of [0, n) that is computed per index: without a table, an epoch of
// 10^12 samples costs nothing to open, and every member reads the same order, however late it
// joins. It is a balanced Feistel network over the next power of four with cycle walking (Black and
// Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
type permutation struct {
	n    uint64
	half uint   // bits of one half
	mask uint64 // of one half
	keys [rounds]uint64
}

// newPermutation returns the order of one epoch. Seed and epoch are mixed one after the other and
// not added: (seed 0, epoch 1) and (seed 1, epoch 0) must not be the same order.
func newPermutation(n, seed, epoch uint64) permutation {
	p := permutation{n: n, half: 1}
	if n > 1 {
		p.half = max(1, uint(bits.Len64(n-1)+1)/2)
	}
	p.mask = 1<<p.half - 1
	k := workerprotocol.SampleHash(workerprotocol.SampleHash(seed) ^ epoch)
	for i := range p.keys {
		k = workerprotocol.SampleHash(k)
		p.keys[i] = k
	}
	return p
}

// at returns the i-th index of the order; i must be below n. The domain is less than four times n,
// so fewer than four iterations are expected.
func (p *permutation) at(i uint64) uint64 {
	for {
		if i = p.encrypt(i); i < p.n {
			return i
		}
	}
}

// positionOf is the inverse of at.
func (p *permutation) positionOf(i uint64) uint64 {
	for {
		if i = p.decrypt(i); i < p.n {
			return i
		}
	}
}

func (p *permutation) encrypt(i uint64) uint64 {
	left, right := i>>p.half, i&p.mask
	for _, k := range p.keys {
		left, right = right, left^workerprotocol.SampleHash(right^k)&p.mask
	}
	return left<<p.half | right
}

func (p *permutation) decrypt(i uint64) uint64 {
	left, right := i>>p.half, i&p.mask
	for r := range p.keys {
		left, right = right^workerprotocol.SampleHash(left^p.keys[rounds-1-r])&p.mask, left
	}
	return left<<p.half | right
}
