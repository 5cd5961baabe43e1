package collective

import (
	"fmt"
	"math"

	"github.com/regroup-io/regroup/collective/kernel"
)

// judgeNarrow checks the promise of AllreduceAs: the error is at most World*u times the sum of the
// magnitudes (times 1+World*u, since what is rounded has an error itself), for numbers in the range
// of the short type.
func judgeNarrow(s step, inputs [][]byte, got []byte) error {
	u, tiny := precision[s.wire], least[s.wire]
	for i := range s.n {
		at := func(r int) []byte { return inputs[r][i*4 : i*4+4] }
		have := decode(kernel.Float32, got[i*4:])
		want := foldFloat(kernel.Float64, s.op, len(inputs), func(r int) []byte {
			return encode(kernel.Float64, nil, decode(kernel.Float32, at(r)))
		})
		var err error
		switch {
		case math.IsNaN(want) || math.IsInf(want, 0):
			if !(have == want || math.IsNaN(have) && math.IsNaN(want)) {
				err = fmt.Errorf("%v, not %v", have, want)
			}
		case s.op == Min || s.op == Max: // rounding keeps the order
			if math.Abs(have-want) > math.Max(u*math.Abs(want), tiny) {
				err = fmt.Errorf("%v, not %v within one rounding", have, want)
			}
		default:
			err = near(kernel.Float32, s.op, len(inputs), at, have, u+precision[kernel.Float32], tiny+least[kernel.Float32])
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}
