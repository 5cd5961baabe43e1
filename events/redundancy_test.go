package events_test

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// TestWhatARedundancyReportSays: ages become times on the clock of who receives it, and what nobody
// has said, or cannot be, is unknown.
func TestWhatARedundancyReportSays(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	if r := events.RedundancyOf(events.Progress{Generation: 3, Step: 7}, now); r != nil {
		t.Errorf("of a signal without one: %+v", r)
	}
	report := events.RedundancyReport{AgeMS: 50, Commit: tables.Commit{Generation: 2, Step: 6}, CommitAgeMS: new(1500.0), Losses: 2, NodeLosses: 1}
	r := events.RedundancyOf(events.Progress{Generation: 3, Redundancy: &report}, now)
	if r == nil || r.Generation != 3 || r.Losses != 2 || r.NodeLosses != 1 || r.Commit.Step != 6 {
		t.Fatalf("%+v", r)
	}
	if got := now.Sub(r.ReportedAt); got != 50*time.Millisecond {
		t.Errorf("reported %v ago", got)
	}
	if got := now.Sub(r.CommittedAt); got != 1500*time.Millisecond {
		t.Errorf("committed %v ago", got)
	}
	if r.Checkpoint != nil || !r.CheckpointAt.IsZero() {
		t.Errorf("a checkpoint: %+v", r)
	}
	report.CommitAgeMS = new(-1.0)
	if r := events.RedundancyOf(events.Progress{Redundancy: &report}, now); !r.CommittedAt.IsZero() {
		t.Errorf("made in the future: %+v", r)
	}
	report.AgeMS = 1e300
	if r := events.RedundancyOf(events.Progress{Redundancy: &report}, now); r != nil {
		t.Errorf("reported before there was anybody: %+v", r)
	}
}

func TestTheNewerRedundancyCounts(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0) }
	say := func(g ident.Generation, step uint64, reported, committed, losses int) *events.Redundancy {
		r := &events.Redundancy{Generation: g, Commit: tables.Commit{Generation: 1, Step: step}, ReportedAt: at(reported), Losses: losses}
		if committed > 0 {
			r.CommittedAt = at(committed)
		}
		return r
	}
	for _, c := range []struct {
		name          string
		known, update *events.Redundancy
		want          *events.Redundancy // nil = known
	}{
		{"nothing new", say(1, 5, 10, 9, 1), nil, nil},
		{"the first", nil, say(1, 5, 10, 9, 1), say(1, 5, 10, 9, 1)},
		{"an earlier generation", say(2, 5, 10, 9, 1), say(1, 8, 11, 10, 0), nil},
		{"an earlier commit, by a clock that is ahead", say(2, 5, 10, 9, 1), say(2, 4, 11, 10, 0), nil},
		{"an earlier report of one commit", say(2, 5, 10, 9, 1), say(2, 5, 8, 9, 0), nil},
		{"a later commit, by a clock that is behind", say(2, 5, 10, 9, 1), say(2, 6, 8, 7, 0), say(2, 6, 8, 7, 0)},
		{"a later generation that has gone back", say(2, 5, 10, 9, 1), say(3, 4, 11, 8, 0), say(3, 4, 11, 8, 0)},
		{"the commit is as old as it was", say(2, 5, 10, 9, 0), say(3, 5, 12, 11, 1), say(3, 5, 12, 9, 1)},
		{"another worker has received the commit", say(2, 5, 10, 9, 0), say(3, 5, 12, 0, 1), say(3, 5, 12, 9, 1)},
		{"nobody knows when it was made", say(2, 5, 10, 9, 0), say(3, 6, 12, 0, 1), say(3, 6, 12, 0, 1)},
	} {
		got, want := events.NewerRedundancy(c.known, c.update), c.want
		if want == nil {
			want = c.known
		}
		if *got != *want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
		if differs := got.Differs(c.known); differs != (c.want != nil) {
			t.Errorf("%s: it says something else: %v", c.name, differs)
		}
	}
}

// TestACheckpointStaysAsOldAsItWas, whichever rank tells of it.
func TestACheckpointStaysAsOldAsItWas(t *testing.T) {
	written := time.Unix(1_700_000_000, 0)
	known := &events.Redundancy{Generation: 1, ReportedAt: written, Checkpoint: &tables.Commit{Generation: 1, Step: 5}, CheckpointAt: written}
	update := &events.Redundancy{Generation: 2, ReportedAt: written.Add(time.Minute), Checkpoint: &tables.Commit{Generation: 1, Step: 5}}
	if got := events.NewerRedundancy(known, update); !got.CheckpointAt.Equal(written) || got.Generation != 2 {
		t.Errorf("%+v", got)
	}
	update.Checkpoint = nil // the new rank 0 knows of none
	if got := events.NewerRedundancy(known, update); got.Checkpoint != nil || !got.CheckpointAt.IsZero() || !got.Differs(known) {
		t.Errorf("%+v", got)
	}
}
