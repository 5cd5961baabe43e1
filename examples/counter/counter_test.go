package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/elastictest"
)

// TestAKilledWorkerChangesNothing checks that the two survivors count exactly.
func TestAKilledWorkerChangesNothing(t *testing.T) {
	hub := elastictest.New(t, 3)
	var wait sync.WaitGroup
	for i := range 3 {
		name := fmt.Sprint("w", i)
		ctx, transport := hub.Start(t, name)
		c := counter{steps: 60, samples: 333, batch: 20, commitEvery: 7, dim: 9, quiet: true}
		if name == "w1" {
			c.beforeStep = func(s *elastic.Session) {
				if s.Step() == 25 {
					hub.Kill(name)
				}
			}
		}
		c.prepare()
		wait.Go(func() {
			err := elastic.Run(ctx, elastic.Options{Job: "counter", Socket: hub.Socket, Token: name, Transport: transport}, c.state, c.train)
			hub.Ended(name, err)
			if name == "w1" && errors.Is(err, elastictest.ErrKilled) {
				return
			}
			if err := errors.Join(err, c.check()); err != nil || c.state.Step() != 60 {
				t.Errorf("%s at step %d: %v", name, c.state.Step(), err)
			}
		})
	}
	wait.Wait()
	if len(hub.Done) != 2 || hub.Generation != 2 {
		t.Errorf("%d workers are done in generation %d, want 2 in 2", len(hub.Done), hub.Generation)
	}
}

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
