package access_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/usage"
)

// TestThoseOutsideImportWhatTheyMay: each subject that a role outside may use is imported, in one
// way.
func TestThoseOutsideImportWhatTheyMay(t *testing.T) {
	for _, account := range access.OutsideAccounts() {
		t.Run(account, func(t *testing.T) { imports(t, account) })
	}
}

func imports(t *testing.T, account string) {
	i, err := access.ImportsOf(account)
	if err != nil {
		t.Fatal(err)
	}
	concrete := func(p string) string {
		return strings.NewReplacer("*", "some-1", ">", "some-1.x").Replace(p)
	}
	published := append(slices.Clone(i.Services), i.Repeated...)
	for _, r := range access.Roles() {
		if r.Account() != account {
			continue
		}
		p := of(t, r)
		for _, s := range p.Publish {
			if !events.MatchAny(published, concrete(s)) {
				t.Errorf("%s may publish %s, which is not imported", r, s)
			}
		}
		for _, s := range p.Subscribe {
			if !events.MatchAny(i.Streams, concrete(s)) {
				t.Errorf("%s may subscribe to %s, which is not imported", r, s)
			}
		}
	}
	if events.MatchAny(published, events.LaunchSubject("node-a", "demo-1")) {
		t.Error("a launch may be published from outside")
	}
	signalled := 0
	for all, one := range map[string]string{events.AllProgress: events.ProgressSubject("demo-1"), usage.All: usage.Subject("node-a")} {
		imports := slices.Contains(i.Signals, all)
		if want := events.MatchAny(i.Streams, one); imports != want {
			t.Errorf("of what agents signal it imports %v", i.Signals)
		}
		if imports {
			signalled++
		}
	}
	if len(i.Signals) != signalled {
		t.Errorf("of what agents signal it imports %v", i.Signals)
	}
	for _, s := range published {
		if many := strings.Contains(s, ".MSG.NEXT."); many != slices.Contains(i.Repeated, s) {
			t.Errorf("%s is answered repeatedly: %v", s, !many)
		}
	}
	// An answer can be a request: what is not for each role of the account must do no harm.
	worker := events.FactSubject(events.WorkerExited{}.Type(), "demo-1")
	closed := []string{
		events.BucketSubject(events.BucketJobs, "demo-1"), events.FactSubject(events.JobRemoved{}.Type(), "demo-1"), "$JS.API.STREAM.DELETE." + events.StreamFacts, "$JS.API.STREAM.SNAPSHOT." + events.StreamFacts,
		"$JS.API.CONSUMER.DELETE." + events.StreamFacts + ".registry-evt", "$JS.API.STREAM.PURGE." + events.StreamFacts,
	}
	command := []string{events.CommandSubject(events.JobStop{}.Type()), events.RequestSubject(events.ServiceRendezvous, events.VerbClose)}
	switch account {
	case access.AccountAgents:
		closed = append(closed, command...)
		closed = append(closed, "$JS.API.CONSUMER.CREATE."+events.StreamFacts+".mine", "$JS.API.STREAM.MSG.GET."+events.BucketStream(events.BucketJobs))
	case access.AccountParticipants:
	case access.AccountViewers:
		closed = append(closed, command...)
		closed = append(closed, events.SpanSubject(events.ServiceGateway))
		fallthrough
	default:
		closed = append(closed, worker, events.HeartbeatSubject("node-a"), events.LaunchSubject("node-a", "demo-1"))
	}
	for _, s := range closed {
		if events.MatchAny(published, s) {
			t.Errorf("%s may be published from outside", s)
		}
		if events.MatchAny(i.Streams, s) {
			t.Errorf("%s may be subscribed to from outside", s)
		}
	}
}
