package statesync

import (
	"slices"
	"testing"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"pgregory.net/rapid"
)

func TestChoosesTheNewest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		all := make([]inventory, rapid.IntRange(1, 40).Draw(r, "world"))
		for i := range all {
			all[i] = inventory{Origin: origin(rapid.IntRange(0, 3).Draw(r, "origin")), Digest: Digest{rapid.Byte().Draw(r, "hash") % 4}}
			all[i].Name.Generation, all[i].Name.Step = rapid.Uint64Range(1, 3).Draw(r, "g"), rapid.Uint64Range(0, 3).Draw(r, "s")
			if all[i].Origin != fromCommit {
				all[i].Name.Run = rapid.Uint64Range(1, 3).Draw(r, "l")
			}
			back, err := decodeInventory(all[i].encode())
			if err != nil || back != all[i] {
				r.Fatalf("%+v became %+v: %v", all[i], back, err)
			}
		}
		best, holders, lacking, err := choose(all)
		if err != nil {
			r.Fatal(err)
		}
		won := all[best]
		for i, v := range all {
			worse := false // than this one
			switch {
			case v.Origin == fromCommit && won.Origin == fromCommit, v.Origin != fromProgram && v.Origin != fromCommit && won.Origin != fromCommit:
				worse = won.Origin == fromProgram || v.Name.Compare(won.Name) > 0 || (v.Name == won.Name && (v.Origin > won.Origin ||
					(v.Origin == won.Origin && v.Digest.compare(won.Digest) < 0)))
			default:
				worse = v.Origin > won.Origin
			}
			if worse {
				r.Fatalf("rank %d's %+v is newer than %+v", i, v, won)
			}
			if slices.Contains(holders, i) != (v.Digest == won.Digest) || slices.Contains(lacking, i) == (v.Digest == won.Digest) {
				r.Fatalf("rank %d is wrong in holders %v and lacking %v", i, holders, lacking)
			}
		}
		if won.Origin == fromProgram && best != 0 {
			r.Fatalf("rank %d's start was chosen, want rank 0's", best)
		}
	})
}

func TestDifferentLayoutsAreRefused(t *testing.T) {
	if _, _, _, err := choose([]inventory{{Layout: Digest{1}}, {Layout: Digest{2}}}); err == nil {
		t.Error("states with different layouts sync")
	}
}

// FuzzInventory: an inventory of foreign bytes is refused or comes back as it was.
func FuzzInventory(f *testing.F) {
	f.Add(inventory{}.encode())
	f.Add(inventory{Origin: fromCommit, Name: checkpoint.Name{Generation: 3, Step: 7}, MetaBytes: 100, Digest: Digest{1}, Layout: Digest{2}}.encode())
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeInventory(b)
		if err != nil {
			return
		}
		if again, err := decodeInventory(v.encode()); err != nil || again != v {
			t.Fatalf("%+v became %+v, %v", v, again, err)
		}
		if newer(v, v) {
			t.Fatalf("%+v is newer than itself", v)
		}
	})
}
