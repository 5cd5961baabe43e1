package english

import "testing"

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"0 nodes": Plural(0, "node"), "1 node": Plural(1, "node"), "2 nodes": Plural(uint64(2), "node"), "1 older job": Plural(1, "older job"),
		"2 processes": Plural(2, "process"), "2 entries": Plural(2, "entry"), "2 days": Plural(2, "day"), "3 batches": Plural(3, "batch"), "9 epochs": Plural(9, "epoch"), "18446744073709551615 steps": Plural(^uint64(0), "step"),
		"4 workers": Between(4, 4, "worker"), "1 worker": Between(1, 1, "worker"), "2 to 4 workers": Between(2, 4, "worker"),
		"1 worker fits": Clause(1, "worker", "fit"), "2 workers fit": Clause(2, "worker", "fit"), "0 jobs pass": Clause(0, "job", "pass"), "1 job passes": Clause(1, "job", "pass"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, n := range map[string][]int{"": nil, "4": {4}, "0-1": {0, 1}, "0-3,6": {0, 1, 2, 3, 6}, "7,3-4,0": {7, 3, 4, 0}} {
		if got := Ranges(len(n), func(i int) int { return n[i] }); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}
