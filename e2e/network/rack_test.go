package network

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/writers"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// TestOneWriterOfARankInARack: a rack is cut off with a broker, a replica of every service and a
// node, so that its agent is answered. The workers there end before others write in their place.
func TestOneWriterOfARankInARack(t *testing.T) {
	c := build(t, Options{Racks: true})
	ctx := within(t, 6*time.Minute)
	file := filepath.Join(t.TempDir(), "writers")
	written := func(what string, ok func([]writers.Entry) bool) {
		t.Helper()
		must(t, cluster.Until(ctx, func() (bool, error) {
			all, err := writers.Read(file)
			return len(all) > 0 && ok(all), fmt.Errorf("waiting until %s: %w", what, err)
		}))
	}
	newest := func(world int) func([]writers.Entry) bool {
		return func(all []writers.Entry) bool { return writers.Ranks(all, all[len(all)-1].Generation) == world }
	}
	job, err := c.Client.Submit(ctx, spec.Job{
		Name: "writers", Workers: spec.Workers{Min: 2, Max: 8}, Recovery: spec.RecoveryRestart, Command: []string{"/usr/bin/python3", "-c", writers.Program, file},
	})
	must(t, err)
	written("all eight write", newest(8))

	cut := c.CutOff(c.Rack()...)
	must(t, c.Break(cut...))
	written("six write in their place", newest(6))
	must(t, c.Heal(cut...))
	must(t, c.NodeIs(ctx, c.Nodes[len(c.Nodes)-1], events.NodeStateReady))
	written("all eight write again", newest(8))
	must(t, writers.End(file))
	_, err = c.JobIs(ctx, job, "it ends", func(v events.JobView) bool { return v.State == events.JobStateSucceeded })
	must(t, err)
	all, err := writers.Read(file)
	must(t, err)
	if err := writers.Alone(all); err != nil {
		t.Error(err)
	}
}

// TestARackThatComesBackAccusesNobody: the services in it have heard no other node meanwhile. What
// they decided on that, and could not store, would end all workers and with them the state of the
// job.
func TestARackThatComesBackAccusesNobody(t *testing.T) {
	c := build(t, Options{Racks: true})
	tr := begin(t, c)
	cut := c.CutOff(c.Rack()...)
	over := tr.fault("a rack with a broker, services and a node cut off")
	must(t, c.Break(cut...))
	tr.trains(6)
	over()
	tr.passes(5 * time.Second) // the rack's broker goes on as a leader for that long
	must(t, c.Heal(cut...))
	tr.trains(8)
	tr.makes(20)
	_, a := tr.ends()
	if a.Uncommitted > 0 {
		t.Errorf("%d commits were lost", a.Uncommitted)
	}
	all, err := c.Facts(tr.ctx, events.AllFacts)
	must(t, err)
	var accused []string
	for _, e := range all {
		if b, ok := e.Body.(events.NodeLost); ok && !slices.Contains(c.Rack(), string(b.Node)) {
			accused = append(accused, fmt.Sprintf("%s %s: %s", e.Time.Format(time.StampMilli), b.Node, b.Reason))
		}
	}
	if len(accused) > 1 { // a busy machine may lose one
		t.Errorf("nodes outside of the rack were lost:\n%s", strings.Join(accused, "\n"))
	}
}
