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
			all[i] = inventory{origin: origin(rapid.IntRange(0, 3).Draw(r, "origin")), digest: Digest{rapid.Byte().Draw(r, "hash") % 4}}
			all[i].name.Generation, all[i].name.Step = rapid.Uint64Range(1, 3).Draw(r, "g"), rapid.Uint64Range(0, 3).Draw(r, "s")
			if all[i].origin != fromCommit {
				all[i].name.Run = rapid.Uint64Range(1, 3).Draw(r, "l")
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
			case v.origin == fromCommit && won.origin == fromCommit, v.origin != fromProgram && v.origin != fromCommit && won.origin != fromCommit:
				worse = won.origin == fromProgram || v.name.Compare(won.name) > 0 || (v.name == won.name && (v.origin > won.origin ||
					(v.origin == won.origin && v.digest.compare(won.digest) < 0)))
			default:
				worse = v.origin > won.origin
			}
			if worse {
				r.Fatalf("rank %d's %+v is newer than %+v", i, v, won)
			}
			if slices.Contains(holders, i) != (v.digest == won.digest) || slices.Contains(lacking, i) == (v.digest == won.digest) {
				r.Fatalf("rank %d is wrong in holders %v and lacking %v", i, holders, lacking)
			}
		}
		if won.origin == fromProgram && best != 0 {
			r.Fatalf("rank %d's start was chosen, want rank 0's", best)
		}
	})
}

func TestDifferentLayoutsAreRefused(t *testing.T) {
	if _, _, _, err := choose([]inventory{{layout: Digest{1}}, {layout: Digest{2}}}); err == nil {
		t.Error("states with different layouts sync")
	}
}

// FuzzInventory: an inventory of foreign bytes is refused or comes back as it was.
func FuzzInventory(f *testing.F) {
	f.Add(inventory{}.encode())
	f.Add(inventory{origin: fromCommit, name: checkpoint.Name{Generation: 3, Step: 7}, metaBytes: 100, digest: Digest{1}, layout: Digest{2}}.encode())
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
