package memory

import (
	"context"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// serverID names the bus where NATS would name a server.
const serverID = "memory"

type endWatcher struct {
	client *Client
	inbox  *inbox[events.Link]
}

type links struct{ *Client }

// connect gives the connection a name of its own. The bus is locked.
func (c *Client) connect() {
	c.bus.made++
	c.link = events.Link{Server: serverID, Client: c.bus.made, Count: c.link.Count + 1}
}

// disconnect tells that the connection has ended, if it was seen. The bus is locked.
func (c *Client) disconnect(seen bool) {
	for _, w := range c.bus.ends {
		if seen && !w.client.down {
			w.inbox.push(events.Link{Server: c.link.Server, Client: c.link.Client})
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

// Ends implements events.Links.
func (l links) Ends(ctx context.Context, fn func(events.Link), ready func()) error {
	w := &endWatcher{client: l.Client, inbox: newInbox[events.Link]()}
	l.bus.mu.Lock()
	l.bus.ends = append(l.bus.ends, w)
	l.bus.mu.Unlock()
	defer func() {
		l.bus.mu.Lock()
		defer l.bus.mu.Unlock()
		l.bus.ends = slices.DeleteFunc(l.bus.ends, func(x *endWatcher) bool { return x == w })
	}()
	if ready != nil {
		ready()
	}
	return drain(ctx, l.bus, w.inbox, fn)
}
