package main

import (
	"context"
	"testing"

	"github.com/regroup-io/regroup/elastic"
)

func TestAloneItCountsExactly(t *testing.T) {
	c := counter{steps: 50, samples: 333, batch: 20, commitEvery: 7, dim: 9, quiet: true}
	c.prepare()
	if err := elastic.Run(context.Background(), elastic.Options{}, c.state, c.train); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil {
		t.Error(err)
	}
	if c.state.Step() != 50 || len(c.state.Ledger().Epochs) != 3 {
		t.Errorf("step %d, ledger %+v", c.state.Step(), c.state.Ledger())
	}
	c.totals[3]++
	if c.check() == nil {
		t.Error("a wrong total is not noticed")
	}
}
