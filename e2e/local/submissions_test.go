package local

import (
	"fmt"
	"sync"
	"testing"

	processes "github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/jetstream"
)

// TestManySubmissionsAtOnce submits jobs of one name from several clients at once, many more than
// there are slots. Each is accepted with its own id, none waits while slots are free, and all end.
func TestManySubmissionsAtOnce(t *testing.T) {
	t.Parallel()
	const jobs, submitters = 100, 8
	c := newCluster(t)
	c.services(2)
	c.agent("node-a", 8)
	c.nodes(patience, "node-a")
	var all sync.WaitGroup
	var ids [jobs]ident.JobID
	var errs [submitters]error
	job := spec.Job{Name: "crowd", Command: []string{"/bin/true"}, Workers: spec.Workers{Min: 1, Max: 1}}
	for k := range submitters {
		all.Go(func() {
			client, err := processes.Connect(t.Context(), jetstream.ConnectOptions{URL: c.url, Name: fmt.Sprintf("client-%d", k)}, nil)
			if err != nil {
				errs[k] = err
				return
			}
			defer client.Close()
			var sent [jobs]string
			for i := k; i < jobs && err == nil; i += submitters {
				sent[i], err = client.Publish(t.Context(), job)
			}
			for i := k; i < jobs && err == nil; i += submitters {
				ids[i], err = client.Accepted(t.Context(), job.Name, sent[i])
			}
			errs[k] = err
		})
	}
	all.Wait()
	for k, err := range errs {
		if err != nil {
			t.Fatalf("client %d: %v", k, err)
		}
	}
	seen := map[ident.JobID]bool{}
	for _, id := range ids {
		v := c.until(id, patience, "it ends", func(v events.JobView) bool { return v.State.Terminal() })
		if v.State != events.JobStateSucceeded || seen[id] {
			t.Errorf("%s is %s (%s); seen before: %t", id, v.State, v.Reason, seen[id])
		}
		seen[id] = true
	}
}
