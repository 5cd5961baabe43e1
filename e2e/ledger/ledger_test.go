package ledger

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

// TestOrderIsThatOfThePage compares Order with docs/samples.md and with the sampler.
func TestOrderIsThatOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/samples.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| (\d+) \| ([\d ]+)( \.\.\.)? \|$`).FindAllStringSubmatch(string(page), -1)
	if len(rows) != 3 {
		t.Fatalf("the page has %d examples, want 3", len(rows))
	}
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, row := range rows {
		var want []uint64
		for _, f := range strings.Fields(row[4]) {
			want = append(want, number(f))
		}
		seed, epoch, n := number(row[1]), number(row[2]), number(row[3])
		if got := Order(seed, epoch, n, uint64(len(want))); !slices.Equal(got, want) {
			t.Errorf("seed %d epoch %d n %d: %v, the page has %v", seed, epoch, n, got, want)
		}
		s := samples.NewSampler(n, seed)
		s.Seek(samples.Cursor{Epoch: epoch})
		for i, x := range s.Next(len(want), 0, 1).Indices {
			if uint64(x) != want[i] {
				t.Errorf("seed %d epoch %d n %d: the sampler has %d at place %d, the page %d", seed, epoch, n, x, i, want[i])
			}
		}
	}
	for _, n := range []uint64{1, 2, 3, 17, 1000} {
		order := Order(3, 4, n, n)
		slices.Sort(order)
		for i, x := range order {
			if x != uint64(i) {
				t.Fatalf("n %d: the order is no permutation", n)
			}
		}
	}
}

// ledgerOf runs a job of one worker for some steps and returns its ledger as it is reported.
func ledgerOf(t *testing.T, size, steps int) Ledger {
	t.Helper()
	state := elastic.NewState(samples.NewSampler(uint64(size), 5))
	err := elastic.Run(t.Context(), elastic.Options{}, state, func(ctx context.Context, s *elastic.Session) error {
		for s.Step() < uint64(steps) {
			if err := s.Consume(ctx, s.Next(7)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"job": "j", "ledger": state.Ledger()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Read(strings.NewReader(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALedgerIsProvedOrRefuted(t *testing.T) {
	seed, other := uint64(5), uint64(6)
	l := ledgerOf(t, 50, 20)
	a, err := l.Check(&seed)
	if err != nil || a != (Account{Epochs: 2, Samples: 50 + 50 + 4*7}) {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := l.Check(&other); err == nil {
		t.Error("the epoch under way is taken for one of another order")
	}
	for what, change := range map[string]func(l *Ledger){
		"a missing sample":             func(l *Ledger) { l.Epochs[0].Count-- },
		"a repeated one":               func(l *Ledger) { l.Epochs[1].Count++ },
		"one for another":              func(l *Ledger) { l.Epochs[0].Sum = "1" + l.Epochs[0].Sum[1:] },
		"one for another, under way":   func(l *Ledger) { l.Epochs[2].Sum = "12345" },
		"an epoch twice":               func(l *Ledger) { l.Epochs = append(l.Epochs, l.Epochs[0]) },
		"no number":                    func(l *Ledger) { l.Epochs[0].Sum = "many" },
		"no ledger":                    func(l *Ledger) { l.Samples = 0 },
		"another size of the data set": func(l *Ledger) { l.Samples++ },
	} {
		bad := l
		bad.Epochs = slices.Clone(l.Epochs)
		change(&bad)
		if _, err := bad.Check(&seed); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
