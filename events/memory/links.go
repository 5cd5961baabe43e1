package memory

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/events"
)

// serverID is used in place of a NATS server's id.
const serverID = "memory"

type links struct{ *Client }

// connect gives the connection a new name. The bus must be locked.
func (c *Client) connect() {
	c.bus.made++
	c.link = events.Link{Server: serverID, Client: c.bus.made, Count: c.link.Count + 1}
}

// disconnect reports that the connection has closed, if seen. The bus must be locked.
func (c *Client) disconnect(seen bool) {
	for _, w := range c.bus.ends {
		if seen && !w.client.down {
			w.push(events.Link{Server: c.link.Server, Client: c.link.Client})
		}
	}
}

// Own implements events.Links.
func (l links) Own() events.Link {
	l.bus.mu.Lock()
	defer l.bus.mu.Unlock()
	if l.down {
		return events.Link{}
	}
	return l.link
}

// Alone implements events.Links.
func (l links) Alone() bool { return true }

// Outage implements events.Links.
func (l links) Outage() events.Outage { return events.Outage{} }

// Majority implements events.Links.
func (l links) Majority(ctx context.Context, _ string, fn func(time.Time, bool)) error {
	fn(time.Time{}, true)
	<-ctx.Done()
	return context.Cause(ctx)
}

// Ends implements events.Links.
func (l links) Ends(ctx context.Context, fn func(events.Link), ready func()) error {
	return receive(ctx, newMailbox[events.Link](l.Client), &l.bus.ends, nil, ready, fn)
}
