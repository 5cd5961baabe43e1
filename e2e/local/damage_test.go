package local

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
)

// TestDestroyedDocumentsAreMadeAgain: on a broker without identities one message of anybody turns
// each document into an answer of the broker. The job goes on, and so does all that follows.
func TestDestroyedDocumentsAreMadeAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	job := c.submit(append([]string{"--workers", "2:2"}, c.counts(500)...)...)
	first := c.until(job, patience, "its first generation steps", steps)
	nc, err := nats.Connect(c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for bucket, key := range map[string]string{
		events.BucketJobs: string(job), events.BucketRounds: string(job), events.BucketPlacements: events.PoolKey, events.BucketNodes: "node-a",
	} {
		if err := nc.PublishRequest("$JS.API.STREAM.INFO."+events.StreamFacts, events.BucketSubject(bucket, key), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range events.ServiceNames() {
		eventually(t, patience, func() (bool, string) {
			return strings.Contains(string(c.procs.Log(s+"-0", 1<<20)), "a document was repaired"), s + " has repaired nothing"
		})
	}
	out, errs, code := c.cli("ls")
	if code != 0 || !strings.Contains(out, string(job)) {
		t.Errorf("ls exits %d: %s%s", code, out, errs)
	}
	if out, errs, code := c.cli("node", "ls"); code != 0 || !strings.Contains(out, "node-a") || !strings.Contains(out, "node-b") {
		t.Errorf("node ls exits %d: %s%s", code, out, errs)
	}
	v := c.until(job, patience, "it trains in a generation after the one that ran", func(v events.JobView) bool { return v.Generation > first.Generation && steps(v) })
	if len(v.Failures) != 0 {
		t.Errorf("failures were counted: %+v", v.CountedFailures)
	}
	c.ends(job, patience)
	next := c.submit(append([]string{"--workers", "4:4"}, counter(100)...)...)
	c.ends(next, patience)
	if s := fmt.Sprint(len(c.job(job).Workers)); s != "2" {
		t.Errorf("the job has had %s workers, want the 2 of the start", s)
	}
}
