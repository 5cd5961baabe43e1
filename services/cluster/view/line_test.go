package view

import (
	"fmt"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

// TestRanks: a list selects lines by the rank of their worker; without one all lines count.
func TestRanks(t *testing.T) {
	for text, want := range map[string]string{"": "-1 0 2 4", "0": "0", "1-2,4": "2 4", "0-9": "0 2 4"} {
		r, ok := ParseRanks(text)
		got := ""
		for _, n := range []int{-1, 0, 2, 4} {
			if r.Has(Line{Rank: ident.Rank(n)}) {
				got += fmt.Sprint(" ", n)
			}
		}
		if !ok || got != " "+want {
			t.Errorf("%q selects%s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"x", "1-", "-1", "3-2", "1,,2"} {
		if r, ok := ParseRanks(text); ok {
			t.Errorf("%q is read as %v", text, r)
		}
	}
}

// TestLines: a chunk without the labels of an agent is of no rank, and one of no slot has no line.
func TestLines(t *testing.T) {
	m := broker.Stored{}
	m.Subject, m.Data, m.Sequence = events.LogSubject("a-0001", "node-b", "3"), []byte("one\ntwo\n"), 7
	all := Lines("a-0001", m)
	if len(all) != 2 || all[1].Text != "two" || all[1].Place != (ident.Place{Node: "node-b", Slot: 3}) || all[1].Rank != -1 || all[1].Sequence != 7 {
		t.Errorf("%+v", all)
	}
	m.Header = map[string][]string{output.HeaderRank: {"5"}, output.HeaderGeneration: {"2"}, output.HeaderStream: {"stderr"}}
	if all = Lines("a-0001", m); all[0].Rank != 5 || all[0].Generation != 2 || all[0].Stream != "stderr" {
		t.Errorf("%+v", all)
	}
	if m.Subject = "x.y"; Lines("a-0001", m) != nil {
		t.Error("a subject without a slot has lines")
	}
}
