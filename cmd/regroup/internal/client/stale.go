package client

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Stale says since when views may be out of date, because services do not answer.
type Stale struct {
	Silent []string  // the services that do not answer, in the order of the control flow
	AsOf   time.Time // when they have stored something last, by the clock of the broker; zero = unknown
}

// String returns a sentence without the time.
func (s Stale) String() string {
	if len(s.Silent) == len(events.ServiceNames()) {
		return "no service answers"
	}
	return "no " + strings.Join(s.Silent, ", no ") + " answers"
}

// StaleJobs returns what is to be said of jobs whose state may be out of date: of each server that
// has one which has not ended, and whose registry does not answer. A broker keeps the state of jobs
// after its services have died.
func (c *Client) StaleJobs(ctx context.Context, views ...events.JobView) []Stale {
	newest := map[*Server]time.Time{}
	for _, v := range views {
		if !v.State.Terminal() {
			at := c.home(v.Job)
			if v.StepAt.After(newest[at]) {
				newest[at] = v.StepAt
			} else if newest[at].IsZero() {
				newest[at] = v.Submitted
			}
		}
	}
	return c.stale(ctx, events.ServiceRegistry, newest)
}

// StaleNodes is StaleJobs for what Nodes returns, and discovery.
func (c *Client) StaleNodes(ctx context.Context, nodes []events.NodeView) []Stale {
	if len(nodes) == 0 {
		return nil
	}
	newest := slices.MaxFunc(nodes, func(a, b events.NodeView) int { return a.Since.Compare(b.Since) }).Since
	servers := map[*Server]time.Time{}
	for i := range c.all {
		if !c.all[i].Idle || len(c.all) == 1 {
			servers[&c.all[i]] = newest
		}
	}
	return c.stale(ctx, events.ServiceDiscovery, servers)
}

// stale asks a service of each server whether it is there; the times are those of the newest thing
// that is known to be stored.
func (c *Client) stale(ctx context.Context, service string, servers map[*Server]time.Time) []Stale {
	var all []Stale
	for i := range c.all {
		at := &c.all[i]
		newest, asked := servers[at]
		if !asked {
			continue
		}
		if !at.Idle {
			if _, err := request[events.Alive](ctx, *at, service, events.VerbAlive, events.Ping{}); !unserved(err) {
				continue
			}
		}
		s := Stale{Silent: silent(ctx, *at), AsOf: newest}
		if !slices.Contains(s.Silent, service) {
			continue // it has come meanwhile
		}
		limited, done := context.WithTimeout(ctx, lastCheck)
		if last, err := at.Ports.Log.Last(limited, events.StreamFacts, events.AllFacts); err == nil && last.Time.After(s.AsOf) {
			s.AsOf = last.Time
		}
		done()
		all = append(all, s)
	}
	return all
}

// home is the server that had a job when it was read last.
func (c *Client) home(job events.JobID) *Server {
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
