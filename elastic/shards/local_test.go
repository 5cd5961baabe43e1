package shards

import (
	"bytes"
	"testing"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// TestWhatIsSaidToBeUnchanged: it is left as it is if a sample is, and all is filled otherwise.
func TestWhatIsSaidToBeUnchanged(t *testing.T) {
	const large, small = 1 << 20, 100
	for _, c := range []struct {
		name   string
		change func(large, small []byte)
		left   bool
	}{
		{"it is", func(_, _ []byte) {}, true},
		{"a large part as a whole", func(large, _ []byte) { copy(large, bytes.Repeat([]byte{7}, len(large))) }, false},
		{"a byte of a small part", func(_, small []byte) { small[small[0]] = 7 }, false},
		{"what no sample has", func(large, _ []byte) { large[sampleBytes] = 7 }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &transfer{chosen: Commit{Generation: 1, Step: 5}}
			for _, n := range []int{large, small} {
				tensor, box := reshard.Tensor{Name: "w", Width: 1, Shape: []int{n}}, reshard.Whole([]int{n})
				kept := bytes.Repeat([]byte{1}, n)
				x.from = append(x.from, []part{{tensor: tensor, box: box, memory: kept}})
				x.into = append(x.into, []part{{tensor: tensor, box: box, memory: bytes.Clone(kept), has: x.chosen}})
			}
			c.change(x.into[0][0].memory, x.into[1][0].memory)
			before := bytes.Clone(x.into[0][0].memory)
			x.copyLocal()
			want, unchanged := x.from[0][0].memory, 0
			if c.left {
				want, unchanged = before, large+small
			}
			if !bytes.Equal(x.into[0][0].memory, want) || x.unchanged != unchanged {
				t.Errorf("%d bytes are said to be unchanged, want %d, or the large part is not as expected", x.unchanged, unchanged)
			}
			if !bytes.Equal(x.into[1][0].memory, x.from[1][0].memory) {
				t.Error("the small part is not that of the commit")
			}
		})
	}
}

// TestWhoseMemoryWasUnchanged: it counts for the same part in the same memory alone, and for the
// commit that it was filled with.
func TestWhoseMemoryWasUnchanged(t *testing.T) {
	of := reshard.Tensor{Name: "w", Type: "byte", Width: 1, Shape: []int{8}}
	half, other := reshard.Box{Offset: []int{0}, Size: []int{4}}, reshard.Box{Offset: []int{4}, Size: []int{4}}
	memory := make([]byte, 4)
	commit := Commit{Generation: 1, Step: 5}
	s := New(Options{})
	s.former, s.filled = map[string][]part{"w": {{tensor: of, box: half, memory: memory}}}, commit
	renamed, typed := of, of
	renamed.Name, typed.Type = "v", "int8"
	for _, c := range []struct {
		name string
		part part
		want Commit
	}{
		{"the same", part{tensor: of, box: half, memory: memory}, commit},
		{"other memory", part{tensor: of, box: half, memory: make([]byte, 4)}, Commit{}},
		{"another part", part{tensor: of, box: other, memory: memory}, Commit{}},
		{"another tensor", part{tensor: renamed, box: half, memory: memory}, Commit{}},
		{"another type", part{tensor: typed, box: half, memory: memory}, Commit{}},
		{"nothing", part{tensor: of, box: reshard.Box{Offset: []int{0}, Size: []int{0}}}, Commit{}},
	} {
		if got := s.formerly(c.part); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
