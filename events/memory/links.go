package memory

import (
	"context"
	"time"

	"github.com/regroup-io/regroup/events/broker"
)

// serverID is used in place of a NATS server's id.
const serverID = "memory"

type links struct{ *Client }

// connect gives the connection a new name. The bus must be locked.
func (c *Client) connect() {
	c.bus.made++
	c.link = broker.Link{Server: serverID, Client: c.bus.made, Count: c.link.Count + 1}
}

// disconnect reports that the connection has closed, if seen. The bus must be locked.
func (c *Client) disconnect(seen bool) {
	for _, w := range c.bus.ends {
		if seen && !w.client.down {
			w.push(broker.Link{Server: c.link.Server, Client: c.link.Client})
		}
	}
}

// Own implements broker.Links.
func (l links) Own() broker.Link {
	l.bus.mu.Lock()
	defer l.bus.mu.Unlock()
	if l.down {
		return broker.Link{}
	}
	return l.link
}

// Alone implements broker.Links.
func (l links) Alone() bool { return true }

// Outage implements broker.Links.
func (l links) Outage() broker.Outage { return broker.Outage{} }

// Majority implements broker.Links.
func (l links) Majority(ctx context.Context, _ string, fn func(time.Time, bool)) error {
	fn(time.Time{}, true)
	<-ctx.Done()
	return context.Cause(ctx)
}

// Ends implements broker.Links.
func (l links) Ends(ctx context.Context, fn func(broker.Link), ready func()) error {
	return receive(ctx, newMailbox[broker.Link](l.Client), &l.bus.ends, nil, ready, fn)
}
