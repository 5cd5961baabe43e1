package collective

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/regroup-io/regroup/collective/kernel"
)

// The oracle computes what a reduction must give in one process, with float64 or int64, one element
// at a time.

var allTypes = []kernel.Type{
	kernel.Int8, kernel.Uint8, kernel.Int16, kernel.Int32, kernel.Int64,
	kernel.Float16, kernel.BFloat16, kernel.Float32, kernel.Float64,
}

// precision is the greatest relative error of rounding to a type.
var precision = map[kernel.Type]float64{
	kernel.Float16: 0x1p-11, kernel.BFloat16: 0x1p-8, kernel.Float32: 0x1p-24, kernel.Float64: 0x1p-53,
}

// least is the greatest rounding error of numbers that are too small for a type: half of its least
// number.
var least = map[kernel.Type]float64{kernel.Float16: 0x1p-25, kernel.BFloat16: 0x1p-134, kernel.Float32: 0x1p-150}

// encode appends v, rounded to t.
func encode(t kernel.Type, b []byte, v float64) []byte {
	le := binary.NativeEndian
	switch t {
	case kernel.Float64:
		return le.AppendUint64(b, math.Float64bits(v))
	case kernel.Float32:
		return le.AppendUint32(b, math.Float32bits(float32(v)))
	case kernel.Float16, kernel.BFloat16:
		var half [2]byte
		kernel.Narrow(t, half[:], le.AppendUint32(nil, math.Float32bits(float32(v))))
		return append(b, half[:]...)
	}
	return encodeInt(t, b, int64(v))
}

// littleEndian is the byte order of this machine.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// encodeInt appends v, truncated.
func encodeInt(t kernel.Type, b []byte, v int64) []byte {
	word := binary.LittleEndian.AppendUint64(nil, uint64(v))[:t.Size()]
	if !littleEndian {
		for i := range len(word) / 2 {
			word[i], word[len(word)-1-i] = word[len(word)-1-i], word[i]
		}
	}
	return append(b, word...)
}

func decode(t kernel.Type, b []byte) float64 {
	le := binary.NativeEndian
	switch t {
	case kernel.Float64:
		return math.Float64frombits(le.Uint64(b))
	case kernel.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case kernel.Float16, kernel.BFloat16:
		var wide [4]byte
		kernel.Widen(t, wide[:], b[:2])
		return float64(math.Float32frombits(le.Uint32(wide[:])))
	}
	return float64(decodeInt(t, b))
}

func decodeInt(t kernel.Type, b []byte) int64 {
	le := binary.NativeEndian
	switch t {
	case kernel.Int8:
		return int64(int8(b[0]))
	case kernel.Uint8:
		return int64(b[0])
	case kernel.Int16:
		return int64(int16(le.Uint16(b)))
	case kernel.Int32:
		return int64(int32(le.Uint32(b)))
	}
	return int64(le.Uint64(b))
}

// flavour is what numbers are like.
type flavour int

const (
	exact   flavour = iota // every order of the ranks gives the same
	special                // infinities, NaN, zeroes of both signs and subnormal numbers; likewise
	random                 // any numbers, so the result has an error
)

func (f flavour) String() string { return [...]string{"exact", "special", "random"}[f] }

// contribution is n numbers of one rank.
func contribution(t kernel.Type, op Op, f flavour, n int, seed uint64, rank int) []byte {
	rng := rand.New(rand.NewPCG(seed, uint64(rank)))
	b := make([]byte, 0, n*t.Size())
	if !t.Float() {
		for range n {
			b = encodeInt(t, b, int64(rng.Uint64()))
		}
		return b
	}
	for range n {
		switch {
		case f == special:
			b = appendSpecial(t, b, op, rng)
		case f == random && op == Product:
			b = encode(t, b, math.Exp(rng.NormFloat64()/8))
		case f == random:
			b = encode(t, b, rng.NormFloat64()*math.Exp(2*rng.NormFloat64()))
		case op == Product:
			b = encode(t, b, [...]float64{1, -1, 2, -2, 0.5, 1}[rng.IntN(6)])
		default:
			b = encode(t, b, float64(rng.IntN(9)-4))
		}
	}
	return b
}

func appendSpecial(t kernel.Type, b []byte, op Op, rng *rand.Rand) []byte {
	zero := math.Copysign(0, -1)
	usual := [...]float64{0, zero, zero, 1}
	switch k := rng.IntN(20); {
	case k == 0: // NaN of any sign and payload
		n := len(b)
		b = encode(t, b, math.NaN())
		b[n] |= byte(rng.Uint32())
		if littleEndian {
			b[n+t.Size()-1] |= byte(rng.Uint32()) & 0x80
		}
		return b
	case k == 1:
		return encode(t, b, math.Inf(1-2*rng.IntN(2)))
	case k < 10 && op != Product: // so many times the least number
		return append(b, encodeInt(map[int]kernel.Type{2: kernel.Int16, 4: kernel.Int32, 8: kernel.Int64}[t.Size()], nil, int64(rng.IntN(7)))...)
	case op == Product:
		return encode(t, b, [...]float64{0, zero, 1, -1, 2, -2, 1, 1}[rng.IntN(8)])
	case op == Min || op == Max:
		return encode(t, b, usual[rng.IntN(4)])
	}
	return encode(t, b, usual[rng.IntN(3)])
}

// judge compares elements [lo, hi) of a result with what the inputs must give.
func judge(t kernel.Type, op Op, f flavour, inputs [][]byte, got []byte, lo, hi int) error {
	size := t.Size()
	if len(got) != (hi-lo)*size {
		return fmt.Errorf("%d bytes, not %d", len(got), (hi-lo)*size)
	}
	for i := lo; i < hi; i++ {
		at := func(rank int) []byte { return inputs[rank][i*size : (i+1)*size] }
		have := got[(i-lo)*size : (i-lo+1)*size]
		switch {
		case !t.Float():
			if want := encodeInt(t, nil, foldInt(t, op, len(inputs), at)); !bytes.Equal(have, want) {
				return fmt.Errorf("element %d is %d, not %d", i, decodeInt(t, have), decodeInt(t, want))
			}
		case f == random && op != Min && op != Max:
			if err := near(t, op, len(inputs), at, decode(t, have), precision[t], least[t]); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		default:
			want := encode(t, nil, foldFloat(t, op, len(inputs), at))
			if nan := math.IsNaN(decode(t, want)); nan != math.IsNaN(decode(t, have)) || !nan && !bytes.Equal(have, want) {
				return fmt.Errorf("element %d is %v (%x), not %v (%x)", i, decode(t, have), have, decode(t, want), want)
			}
		}
	}
	return nil
}

func foldInt(t kernel.Type, op Op, ranks int, at func(int) []byte) int64 {
	all := decodeInt(t, at(0))
	for r := 1; r < ranks; r++ {
		v := decodeInt(t, at(r))
		switch op {
		case Sum, Average:
			all += v
		case Product:
			all *= v
		case Min:
			all = min(all, v)
		case Max:
			all = max(all, v)
		}
	}
	if op == Average {
		all = decodeInt(t, encodeInt(t, nil, all)) / int64(ranks) // the sum has wrapped around
	}
	return all
}

func foldFloat(t kernel.Type, op Op, ranks int, at func(int) []byte) float64 {
	all := decode(t, at(0))
	for r := 1; r < ranks; r++ {
		v := decode(t, at(r))
		switch op {
		case Sum, Average:
			all += v
		case Product:
			all *= v
		case Min:
			all = min(all, v)
		case Max:
			all = max(all, v)
		}
	}
	switch {
	case op != Average:
	case t == kernel.Float64:
		all *= 1 / float64(ranks)
	default:
		all = float64(float32(all) * float32(1/float64(ranks)))
	}
	return all
}

// near tells whether a sum, average or product is as exact as it must be: each of the additions
// may be off by the precision of the type, relative to the sum of the magnitudes.
func near(t kernel.Type, op Op, ranks int, at func(int) []byte, have, eps, least float64) error {
	want, size := foldFloat(kernel.Float64, op, ranks, func(r int) []byte {
		return encode(kernel.Float64, nil, decode(t, at(r)))
	}), 0.0
	for r := range ranks {
		size += math.Abs(decode(t, at(r)))
	}
	n := float64(ranks)
	switch op {
	case Average:
		size /= n
		n += 2 // the factor and the multiplication are rounded too
	case Product:
		size = math.Abs(want)
	}
	if bound := n*eps*size*(1+n*eps) + n*least; !(math.Abs(have-want) <= bound) {
		return fmt.Errorf("%v, not %v: off by %g, and %g is allowed", have, want, math.Abs(have-want), bound)
	}
	return nil
}
