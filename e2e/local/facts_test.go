package local

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
)

// facts reads all facts about a job, in order.
func facts(t *testing.T, c *cluster, job ident.JobID) []events.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []events.Event
	end := errors.New("all seen")
	err := c.ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{"regroup.evt.*." + string(job) + ".>"}, Start: broker.FromFirst},
		func(m broker.Stored) error {
			e, err := cloudevent.Decode(m.Header, m.Data)
			if err != nil {
				return fmt.Errorf("stored fact %d: %w", m.Sequence, err)
			}
			all = append(all, e)
			if f := e.Body.Type(); f == (events.RoundClosed{}).Type() {
				return end
			}
			return nil
		}, nil)
	if !errors.Is(err, end) {
		t.Fatalf("the facts of %s do not end with its round: %v", job, err)
	}
	return all
}

// publishedOnce checks that services' facts are numbered without gap or repeat per family, and that
// event ids are unique.
func publishedOnce(t *testing.T, c *cluster, job ident.JobID) {
	t.Helper()
	ids := map[string]bool{}
	last := map[events.Family]uint64{}
	for _, e := range facts(t, c, job) {
		if ids[e.Source+e.ID] {
			t.Errorf("%s was published twice", e.ID)
		}
		ids[e.Source+e.ID] = true
		if e.Number == 0 {
			continue
		}
		f := e.Body.Type().Family()
		if e.Number != last[f]+1 {
			t.Errorf("%s: number %d follows %d", e.Body.Type(), e.Number, last[f])
		}
		last[f] = e.Number
	}
	if len(ids) == 0 {
		t.Error("no fact was published")
	}
}

// rejected reads every rejection so far.
func rejected(t *testing.T, c *cluster) []events.JobRejected {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []events.JobRejected
	end, stop := context.WithCancel(ctx)
	err := c.ports.Log.Follow(end, broker.Follow{Stream: events.StreamFacts, Subjects: []string{"regroup.evt.job.*.rejected"}, Start: broker.FromFirst},
		func(m broker.Stored) error {
			e, err := cloudevent.Decode(m.Header, m.Data)
			if err != nil {
				return err
			}
			if r, ok := e.Body.(events.JobRejected); ok {
				all = append(all, r)
			}
			return nil
		}, stop)
	if ctx.Err() != nil {
		t.Fatalf("reading rejections: %v", err)
	}
	return all
}
