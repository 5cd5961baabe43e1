package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// Stale says since when views may be out of date, because services do not answer.
type Stale struct {
	Silent []string  // the services that do not answer, in the order of the control flow
	Ended  bool      // the process of the services has ended, on this machine: regroup up goes on with its jobs
	AsOf   time.Time // when the service that has the views stored its newest fact, by the clock of the broker; zero = unknown
}

// String returns a sentence without the time.
func (s Stale) String() string {
	if len(s.Silent) == len(events.ServiceNames()) {
		return "no service answers"
	}
	return "no " + strings.Join(s.Silent, ", no ") + " answers"
}

// StaleJobs looks at each server that has one of the jobs, if that has not ended, and returns an
// entry if the registry there does not answer: the state of jobs may be out of date. A broker keeps
// it after its services have died.
func (c *Client) StaleJobs(ctx context.Context, views ...events.JobView) []Stale {
	servers := map[*Server]bool{}
	for _, v := range views {
		if !v.State.Terminal() {
			servers[c.home(v.Job)] = true
		}
	}
	return c.stale(ctx, events.ServiceRegistry, servers)
}

// ServerEnded reports whether the process of a job's services has ended, on this machine.
func (c *Client) ServerEnded(job ident.JobID) bool { return c.home(job).Idle }

// StaleNodes does the same for what Nodes returns, and discovery. Of several servers it passes over
// those without services.
func (c *Client) StaleNodes(ctx context.Context, nodes []events.NodeView) []Stale {
	servers := map[*Server]bool{}
	for i := range c.all {
		if len(nodes) > 0 && (!c.all[i].Idle || len(c.all) == 1) {
			servers[&c.all[i]] = true
		}
	}
	return c.stale(ctx, events.ServiceDiscovery, servers)
}

// stale asks a service of each server whether it is there, but of those whose services are known to
// be down.
func (c *Client) stale(ctx context.Context, service string, servers map[*Server]bool) []Stale {
	var all []Stale
	for i := range c.all {
		at := &c.all[i]
		if !servers[at] {
			continue
		}
		if !at.Idle {
			if _, err := request[events.Alive](ctx, at.Ports.Calls, service, events.VerbAlive, events.Ping{}); !unserved(err) {
				continue
			}
		}
		s := Stale{Silent: at.silent(ctx), Ended: at.Idle, AsOf: storedLast(ctx, *at, service)}
		if slices.Contains(s.Silent, service) { // otherwise it has answered meanwhile
			all = append(all, s)
		}
	}
	return all
}

// storedLast returns when a service has stored a fact last; zero = unknown.
func storedLast(ctx context.Context, at Server, service string) (newest time.Time) {
	ctx, cancel := context.WithTimeout(ctx, lastCheck)
	defer cancel()
	asked := map[events.Family]bool{}
	for _, row := range events.Catalog() {
		f := row.Type.Family()
		if row.Class != events.ClassFact || row.Writer != service || asked[f] {
			continue
		}
		asked[f] = true
		last, err := at.Ports.Log.Last(ctx, events.StreamFacts, events.FamilySubject(f, "*"))
		if err == nil && last.Time.After(newest) {
			newest = last.Time
		}
	}
	return newest
}

// home is the server that had a job when it was read last, or else the one in use.
func (c *Client) home(job ident.JobID) *Server {
	if s, ok := c.homes.Load(job); ok {
		return s.(*Server) //nolint:forcetypeassert // remember stores nothing else
	}
	return c.at.Load()
}

// remember notes which server has which job.
func (c *Client) remember(all [][]events.JobView) {
	for i, of := range all {
		for _, v := range of {
			c.homes.Store(v.Job, &c.all[i])
		}
	}
}
