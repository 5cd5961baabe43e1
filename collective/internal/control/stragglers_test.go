package control

import (
	"slices"
	"testing"
)

func TestWaitTablesAreMergedAndBounded(t *testing.T) {
	var a, b waitTable
	for rank := range 3 * maxWaitEntries {
		a.add((&waitTable{entries: []waitEntry{{uint32(rank), 1, uint32(3*maxWaitEntries - rank)}}}).encode(), 3*maxWaitEntries)
	}
	if len(a.entries) != maxWaitEntries || a.entries[0].rank != 3*maxWaitEntries-1 {
		t.Fatal(len(a.entries), a.entries[0])
	}
	b.put(waitEntry{rank: 3*maxWaitEntries - 1, period: 2, share: 9})
	b.add(a.encode(), 3*maxWaitEntries)
	if i := slices.IndexFunc(b.entries, func(n waitEntry) bool { return n.rank == 3*maxWaitEntries-1 }); b.entries[i].share != 9 {
		t.Fatal("an old entry replaced a newer one")
	}
	b.add(a.encode(), 1)
	b.add([]byte{1, 2, 3}, 1)
}
