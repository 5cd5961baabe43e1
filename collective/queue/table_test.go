package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

func TestTensorsOfOneKindArePackedUpToTheThreshold(t *testing.T) {
	f32 := fusion{dtype: kernel.Float32}
	f64 := fusion{dtype: kernel.Float64}
	var all []*request
	for i, r := range []struct {
		fuse  fusion
		bytes int
	}{{f32, 40}, {f64, 40}, {f32, 40}, {fusion{}, 1}, {f32, 40}, {f32, 200}, {f64, 60}, {f32, 1}} {
		all = append(all, &request{name: fmt.Sprint(i), fuse: r.fuse, tensor: collective.Tensor{Data: make([]byte, r.bytes)}})
	}
	var got []string
	for _, g := range pack(all, 100) {
		names := ""
		for _, r := range g {
			names += r.name
		}
		got = append(got, names)
	}
	if want := []string{"02", "16", "3", "47", "5"}; !slices.Equal(got, want) {
		t.Fatal(got, want)
	}
}

func TestATableThatIsFullForgetsEverything(t *testing.T) {
	var table table
	table.init()
	names := func(from int) []entry {
		return []entry{{fmt.Sprint(from), "k"}, {fmt.Sprint(from + 1), "k"}}
	}
	for i := 0; i <= capacity; i += 2 {
		table.learn([][]entry{names(i), names(i)})
	}
	table.learn([][]entry{names(0), names(0)})
	if len(table.names) != 2 || len(table.ids) != 2 {
		t.Fatal(len(table.names), len(table.ids))
	}
}

func FuzzEntries(f *testing.F) {
	f.Add(encodeEntries([]entry{{"a", "b"}, {"", "long"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeEntries(b)
		if err != nil {
			return
		}
		again, err := decodeEntries(encodeEntries(all))
		if err != nil || !slices.Equal(all, again) {
			t.Fatalf("%q became %q, %v", all, again, err)
		}
	})
}
