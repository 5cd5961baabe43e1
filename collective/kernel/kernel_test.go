package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// checkCombine checks dst = a op b for one set of offsets, with dst apart, as a, and as b.
func checkCombine(t *testing.T, v *variant, rng *rand.Rand, elem Type, op Op, n int, offsets [3]int) {
	t.Helper()
	a, b := fill(rng, elem, offsets[0], n), fill(rng, elem, offsets[1], n)
	x, y := slices.Clone(a.body), slices.Clone(b.body)
	want := func(i int) uint64 { return combineOne(elem, op, get(elem, x, i), get(elem, y, i)) }
	for _, dst := range []fenced{fence(offsets[2], len(x)), a, b} {
		copy(a.body, x)
		copy(b.body, y)
		v.combineAll(elem, op, n, dst.body, a.body, b.body)
		expect(t, elem, dst.body, want)
		dst.check(t)
	}
}

func TestCombineEveryLength(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, elem := range allTypes {
			for _, op := range allOps {
				for _, n := range lengths() {
					checkCombine(t, v, rng, elem, op, n, [3]int{rng.IntN(64), rng.IntN(64), rng.IntN(64)})
				}
			}
		}
	})
}

func TestCombineSeveralPieces(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, elem := range allTypes {
			checkCombine(t, v, rng, elem, OpSum, 2*piece+77, [3]int{0, 8, 3})
		}
	})
}

func TestCombineEveryOffset(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		for _, elem := range allTypes {
			for _, op := range allOps {
				for offset := range 64 {
					other := rng.IntN(64)
					checkCombine(t, v, rng, elem, op, 90, [3]int{offset, other, other})
					checkCombine(t, v, rng, elem, op, 90, [3]int{other, offset, other})
					checkCombine(t, v, rng, elem, op, 90, [3]int{other, other, offset})
				}
			}
		}
	})
}

func TestCombineAllPairsOfSpecialValues(t *testing.T) {
	values := map[Type][]uint64{}
	for _, elem := range allTypes {
		values[elem] = special[elem]
	}
	for bits := range uint64(256) { // of these, all there are
		values[Int8] = append(values[Int8], bits)
		values[Uint8] = append(values[Uint8], bits)
	}
	each(t, func(t *testing.T, v *variant) {
		for elem, values := range values {
			n := len(values) * len(values)
			a, b := make([]byte, n*elem.Size()), make([]byte, n*elem.Size())
			for i := range n {
				put(elem, a, i, values[i%len(values)])
				put(elem, b, i, values[i/len(values)])
			}
			dst := make([]byte, len(a))
			for _, op := range allOps {
				v.combineAll(elem, op, n, dst, a, b)
				expect(t, elem, dst, func(i int) uint64 { return combineOne(elem, op, get(elem, a, i), get(elem, b, i)) })
			}
		}
	})
}

func TestReduceLeavesTheSourceAlone(t *testing.T) {
	dst, src := []byte{1, 200}, []byte{255, 100}
	Reduce(Uint8, OpSum, dst, src)
	if !slices.Equal(dst, []byte{0, 44}) || !slices.Equal(src, []byte{255, 100}) {
		t.Fatal(dst, src)
	}
}

func TestFeaturesNamesTheBestVariant(t *testing.T) {
	all := variants()
	if got, want := chosen.name, all[len(all)-1].name; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if all[0].name != "generic" {
		t.Fatal("the first is ", all[0].name)
	}
}

func TestMisuseIsAPanic(t *testing.T) {
	four, six := make([]byte, 4), make([]byte, 6)
	for name, misuse := range map[string]func(){
		"half an element":        func() { Reduce(Float32, OpSum, six, six) },
		"a short source":         func() { Reduce(Int16, OpSum, six, four) },
		"a long source":          func() { Reduce(Int16, OpSum, four, six) },
		"a short operand":        func() { Combine(Int16, OpMin, six, six, four) },
		"no type":                func() { Reduce(0, OpSum, four, four) },
		"an unknown type":        func() { Reduce(types, OpSum, four, four) },
		"an unknown operation":   func() { Reduce(Int8, ops, four, four) },
		"narrow to float32":      func() { Narrow(Float32, four, four) },
		"narrow of as many":      func() { Narrow(Float16, four, four) },
		"widen of float64":       func() { Widen(Float64, four, four) },
		"widen to as many":       func() { Widen(BFloat16, four, four) },
		"reduce of as many":      func() { ReduceWiden(BFloat16, OpSum, four, four) },
		"reduce of wide":         func() { ReduceWiden(Float32, OpSum, four, four) },
		"reduce, no operation":   func() { ReduceWiden(Float16, ops, make([]byte, 8), four) },
		"a factor for integers":  func() { Scale(Int32, four, 2) },
		"a factor for half":      func() { Scale(Float32, six, 2) },
		"an average of none":     func() { Average(Float32, four, 0) },
		"an average of half":     func() { Average(Int32, six, 2) },
		"a copy of another size": func() { Stream(six, four) },
		"a stream too":           func() { Stream(four, six) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			misuse()
		})
	}
}
