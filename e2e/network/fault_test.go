package network

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// eight workers on four nodes; steps of 10 ms.
func training(name string, steps int) Training {
	return Training{Name: name, Workers: events.Workers{Min: 2, Max: 8}, Steps: steps, Samples: 3000, Batch: 48, CommitEvery: 5, StepTime: 10 * time.Millisecond}
}

func TestNodeCutOff(t *testing.T) {
	c := center(t)
	r, err := c.Train(t.Context(), training("thin", 1000))
	must(t, err)
	g, err := r.Trains(within(t, 30*time.Second), 0, 8)
	must(t, err)
	must(t, c.Break(Isolate("node-4")...))
	began := time.Now()
	g, err = r.Trains(within(t, 30*time.Second), g.Generation, 6)
	must(t, err)
	t.Logf("six train on after %v", time.Since(began))
	must(t, c.HealAll())
	g, err = r.Trains(within(t, 30*time.Second), g.Generation, 8)
	must(t, err)
	_, a, err := r.Ends(within(t, 60*time.Second))
	must(t, err)
	t.Logf("%+v", a)
}
