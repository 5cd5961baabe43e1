package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/presence"
	"github.com/regroup-io/regroup/jetstream/refusal"
	"github.com/regroup-io/regroup/jetstream/server"
)

// allEnds is the subject on which servers report closed client connections, one message each
// (nats-server, events.go). A server that dies or shuts down does not report those of its clients.
const allEnds = "$SYS.ACCOUNT.*.DISCONNECT"

// ended is the part of the server's message that is used.
type ended struct {
	Server struct {
		ID string `json:"id"`
	} `json:"server"`
	Client struct {
		ID uint64 `json:"id"`
	} `json:"client"`
}

type links struct{ c *Conn }

// counted numbers the connections of a process in the order of their first use.
type counted struct {
	mu   sync.Mutex
	link broker.Link
}

// Own implements broker.Links.
func (p links) Own() broker.Link {
	nc, seen := p.c.nc, &p.c.link
	seen.mu.Lock()
	defer seen.mu.Unlock()
	server := nc.ConnectedServerId()
	client, err := nc.GetClientID()
	if err != nil || server == "" || nc.ConnectedServerId() != server { // between two connections
		return broker.Link{}
	}
	if l := (broker.Link{Server: server, Client: client}); !l.Same(seen.link) {
		l.Count = seen.link.Count + 1
		seen.link = l
	}
	return seen.link
}

// Ends implements broker.Links, over a separate connection: accounts are isolated.
func (p links) Ends(ctx context.Context, fn func(broker.Link), ready func()) error {
	o, err := p.system()
	if err != nil {
		return err
	}
	s := &Conn{opt: o, log: p.c.log, state: newState(), dialer: presence.Dialer{Timeout: connectTimeout}}
	if s.nc, err = nats.Connect(o.URL, s.options(o)...); err != nil {
		code := errcode.Unavailable
		if refusal.OfUser(err) {
			code = errcode.NotFound
		}
		return errcode.Errorf(code, "connect to the system account of NATS as %q: %w", cmp.Or(o.own.Name, o.Credentials), err)
	}
	defer s.Close()
	if s.creds != nil {
		go s.renewing()
	}
	return s.subscribe(ctx, allEnds, "", func(m *nats.Msg) {
		var e ended
		if json.Unmarshal(m.Data, &e) == nil {
			fn(broker.Link{Server: e.Server.ID, Client: e.Client.ID})
		}
	}, ready)
}

// system returns the options of a connection to the system account.
func (p links) system() (ConnectOptions, error) {
	o := p.c.opt
	sys := o.System
	if o.Server != nil && sys.URL == "" && o.Server.System().Given() {
		sys = o.Server.System() // its own are correct, and over a pipe a refusal is reported late
	}
	if !sys.Given() {
		return o, errcode.Errorf(errcode.NotFound, "no access to the system account of NATS is configured")
	}
	if sys.URL != "" {
		o.URL, o.Server = sys.URL, nil
	} else {
		o.URL = anonymous(o.URL) // a user there would be used in place of this one
	}
	o.Name, o.Credentials, o.own = o.Name+" (system)", sys.Credentials, server.User{Name: sys.User, Password: sys.Password}
	o.InboxPrefix = ""               // that of these credentials
	o.Jitter = 10 * time.Millisecond // there are few services, and reports are missed meanwhile
	return o, nil
}

// anonymous returns URLs, separated by commas, without the users that they name.
func anonymous(urls string) string {
	all := strings.Split(urls, ",")
	for i, one := range all {
		if u, err := url.Parse(one); err == nil && u.User != nil {
			u.User = nil
			all[i] = u.String()
		}
	}
	return strings.Join(all, ",")
}

// denials is how often a user is refused until it counts as denied: the end of its connection, and
// an attempt that has read its credentials again. They may have been replaced.
const denials = 2

// Alone implements broker.Links: brokers of a cluster give its name.
func (p links) Alone() bool {
	nc := p.c.nc
	return nc.IsConnected() && nc.ConnectedClusterName() == ""
}

// Outage implements broker.Links.
func (p links) Outage() (o broker.Outage) {
	if p.c.nc.IsConnected() {
		return o
	}
	o.Denied = p.c.refusals.Load() >= denials
	o.Stopped = p.c.dialer.Stopped(len(p.c.nc.Servers()))
	return o
}

const (
	// askedEvery is how often the brokers are asked whether they are there.
	askedEvery = 100 * time.Millisecond
	// copiesEvery is how often the leader of a stream is asked which brokers store it.
	copiesEvery = 10 * time.Second
	copiesAgain = time.Second // until the first answer
)

// Majority implements broker.Links. Which brokers store a stream is as its leader has reported
// last; that they can be reached, each of them reports itself.
func (p links) Majority(ctx context.Context, bucket string, fn func(asked time.Time, alone bool)) error {
	began, stream := time.Now(), events.BucketStream(bucket)
	q := presence.Questions{Inbox: p.c.nc.NewInbox()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() {
		if p.Alone() {
			fn(time.Time{}, true) // now: who is alone waits for nobody
		}
		_ = wait.Every(ctx, askedEvery, func(now time.Time) error {
			switch {
			case p.Alone():
				fn(time.Time{}, true)
			case p.c.refused.Since(access.BrokersAlive, began):
				cancel(errcode.Errorf(errcode.NotFound, "the brokers do not let this user ask which of them are there: let it publish to %s", access.BrokersAlive))
			case p.c.nc.IsConnected():
				_ = p.c.nc.PublishRequest(access.BrokersAlive, q.Ask(now), []byte(`{"include_unused":true}`)) // or the next one
			}
			return nil
		})
	})
	tasks.Go(func() {
		again := copiesAgain
		for asking := true; asking; asking = p.c.state.pause(ctx, again) {
			if p.Alone() {
				continue
			}
			if s, err := p.c.streamInfo(ctx, stream); err == nil {
				q.Copies(s.Cluster)
				again = copiesEvery
			}
		}
	})
	return p.c.subscribe(ctx, q.Inbox+".*", "", func(m *nats.Msg) {
		if asked, ok := q.Answer(m); ok {
			fn(asked, false)
		}
	}, nil)
}
