// Package shares looks after what identities take of a broker together with others: consumers,
// which brokers count by stream, connections, which they count by account, and what they publish in
// a second, which they do not count at all. What is here counts them by identity, as its claims
// say: it deletes or closes what is newest above that, and finds who publishes more.
package shares

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// Limits of the removal of one consumer, and of the subscription that tells who makes them.
const deleteWithin, askWithin = 2 * time.Second, 2 * time.Second

// consumerKey names a consumer.
type consumerKey struct{ stream, name string }

// shares counts consumers. It is what one broker knows; each does the same.
type shares struct {
	nc  *nats.Conn
	api js.JetStream
	log *slog.Logger

	mu     sync.Mutex
	all    map[consumerKey]string // whose they are, by key of the user; "" = unknown
	count  map[string]int
	asked  *nats.Subscription   // while there are many
	logged map[string]time.Time // by key of the user

	doomed chan consumerKey
}

// Keep deletes the consumers of identities that have too many, the newest first, until ctx
// ends. The connection needs the permissions of the operator. Who has made a consumer is asked only
// while there are more than access.ConsumersUnasked of them: the broker's reports of that have
// every request to the API of JetStream.
func Keep(ctx context.Context, nc *nats.Conn, api js.JetStream, log *slog.Logger) error {
	s := &shares{nc: nc, api: api, log: log, all: map[consumerKey]string{}, count: map[string]int{}, logged: map[string]time.Time{}, doomed: make(chan consumerKey, 1<<16)}
	var subs []*nats.Subscription
	for subject, fn := range map[string]nats.MsgHandler{access.AdvisoryCreated: s.reported(s.created), access.AdvisoryDeleted: s.reported(s.deleted)} {
		sub, err := nc.Subscribe(subject, fn)
		if err != nil {
			return errcode.Errorf(errcode.Unavailable, "subscribe to %s: %w", subject, err)
		}
		subs = append(subs, sub)
	}
	var deleting sync.WaitGroup
	for range 8 {
		deleting.Go(func() {
			for {
				select {
				case k := <-s.doomed:
					s.remove(ctx, k)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	<-ctx.Done()
	deleting.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != nil {
		subs = append(subs, s.asked)
	}
	for _, sub := range subs {
		_ = sub.Unsubscribe() // the connection may be closed
	}
	return context.Cause(ctx)
}

// action is the broker's report of a consumer that was made or deleted.
type action struct {
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
}

// reported returns the handler of reports, which calls fn with the consumer of each.
func (s *shares) reported(fn func(k consumerKey)) nats.MsgHandler {
	return func(m *nats.Msg) {
		var a action
		if json.Unmarshal(m.Data, &a) != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		fn(consumerKey{a.Stream, a.Consumer})
		s.ask()
	}
}

func (s *shares) created(k consumerKey) {
	if _, known := s.all[k]; !known {
		s.all[k] = ""
	}
}

func (s *shares) deleted(k consumerKey) {
	if user, known := s.all[k]; known {
		delete(s.all, k)
		if s.count[user]--; s.count[user] <= 0 {
			delete(s.count, user)
		}
	}
}

// ask asks who makes consumers while there are many.
func (s *shares) ask() {
	switch many := len(s.all) > access.ConsumersUnasked; {
	case many && s.asked == nil:
		sub, err := s.nc.Subscribe(access.AdvisoryAsked, s.made)
		if err != nil {
			return // the next one tries again
		}
		s.asked = sub
		if s.nc.FlushTimeout(askWithin) == nil { // from here on it is known of each whose it is
			s.log.Info("there are many consumers: the broker is asked who makes them", "consumers", len(s.all))
		}
	case !many && s.asked != nil && len(s.all) < access.ConsumersUnasked/2:
		_ = s.asked.Unsubscribe() // the connection may be closed
		s.asked = nil
	}
}

// audit is the part of the broker's report of a request that is used.
type audit struct {
	Client struct {
		User string   `json:"user"`
		Name string   `json:"name_tag"`
		Tags []string `json:"tags"`
	} `json:"client"`
	Subject  string `json:"subject"`
	Response string `json:"response"`
}

// made applies who has made a consumer.
func (s *shares) made(m *nats.Msg) {
	var a audit
	if json.Unmarshal(m.Data, &a) != nil || !access.Counted(a.Subject) {
		return
	}
	var info struct {
		Stream string          `json:"stream_name"`
		Name   string          `json:"name"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal([]byte(a.Response), &info) != nil || len(info.Error) > 0 || a.Client.User == "" {
		return
	}
	k := consumerKey{info.Stream, info.Name}
	most := identity.Amounts(a.Client.Tags).Consumers
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[k] == a.Client.User {
		return // it has changed it
	}
	s.all[k] = a.Client.User
	if s.count[a.Client.User]++; most == 0 || s.count[a.Client.User] <= most {
		return
	}
	select {
	case s.doomed <- k:
	default: // the next one is
	}
	if now := time.Now(); now.Sub(s.logged[a.Client.User]) > time.Minute {
		s.logged[a.Client.User] = now
		s.log.Warn("an identity has more consumers than its share: the newest are deleted", "user", a.Client.Name, "share", most)
	}
}

// remove deletes a consumer, unless it is one of a service.
func (s *shares) remove(ctx context.Context, k consumerKey) {
	if slices.ContainsFunc(events.ServiceConsumers(), func(c events.ServiceConsumer) bool { return c.Durable == k.name }) {
		return
	}
	limit, cancel := context.WithTimeout(ctx, deleteWithin)
	defer cancel()
	err := s.api.DeleteConsumer(limit, k.stream, k.name)
	if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "not found") {
		s.log.Debug("a consumer above a share could not be deleted", "stream", k.stream, "consumer", k.name, "reason", err.Error())
	}
}
