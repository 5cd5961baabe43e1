package screen_test

import (
	"testing"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// TestWaitsAreTold: who watches a job reads how long it waits, before which attempt, and why.
func TestWaitsAreTold(t *testing.T) {
	s := screen.NewStory(screen.Palette{})
	for want, b := range map[string]events.Body{
		"… waits 30s before attempt 12 of 21: 11 generations in a row were lost without progress": events.RoundDelayed{
			Proposed: 12, NoProgress: 11, WaitMS: 30_000, Attempts: events.Attempts{Attempt: 12, Of: 21},
		},
		"… a/1 waits 250ms before attempt 4: it died soon after its start": events.JobDelayed{
			Place: ident.Place{Node: "a", Slot: 1}, WaitMS: 250, Attempts: events.Attempts{Attempt: 4},
		},
	} {
		if got := s.Line(b); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
