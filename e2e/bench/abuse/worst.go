package abuse

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
)

// taken counts what an identity got.
type taken struct{ connections, subscriptions, consumers, messages, requests atomic.Int64 }

func (t *taken) String() string {
	return fmt.Sprintf("%d connections, %d subscriptions, %d consumers, %d messages and %d answers in turn", t.connections.Load(), t.subscriptions.Load(), t.consumers.Load(), t.messages.Load(), t.requests.Load())
}

// worst takes what an identity can get until ctx ends, and returns how much that was.
func (l *lab) worst(ctx context.Context, who access.Identity) string {
	got := &taken{}
	var all sync.WaitGroup
	for _, do := range []func(context.Context, access.Identity, *taken){l.connect, l.subscribe, l.consume, l.publish, l.ask} {
		all.Go(func() { do(ctx, who, got) })
	}
	all.Wait()
	return got.String()
}

func (l *lab) dial(who access.Identity) (*nats.Conn, error) {
	credentials, authority := l.Credentials(who.Name)
	return nats.Connect(l.URL, nats.UserCredentials(credentials), nats.RootCAs(authority),
		nats.CustomInboxPrefix(who.InboxPrefix()), nats.NoReconnect(), nats.Timeout(5*time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

// again calls fn with a connection until ctx ends, with a new one once fn returns.
func (l *lab) again(ctx context.Context, who access.Identity, fn func(*nats.Conn)) {
	for ctx.Err() == nil {
		nc, err := l.dial(who)
		if err != nil {
			select {
			case <-time.After(50 * time.Millisecond): // it was refused
			case <-ctx.Done():
			}
			continue
		}
		fn(nc)
		nc.Close()
	}
}

// connect opens connections and keeps them.
func (l *lab) connect(ctx context.Context, who access.Identity, got *taken) {
	var all []*nats.Conn
	for ctx.Err() == nil {
		if nc, err := l.dial(who); err == nil {
			all = append(all, nc)
			got.connections.Add(1)
		}
	}
	for _, nc := range all {
		nc.Close()
	}
}

// subscribe makes subscriptions.
func (l *lab) subscribe(ctx context.Context, who access.Identity, got *taken) {
	l.again(ctx, who, func(nc *nats.Conn) {
		for n := 0; ctx.Err() == nil && nc.IsConnected(); n++ {
			if _, err := nc.SubscribeSync(fmt.Sprint(who.InboxPrefix(), ".", n)); err != nil {
				return
			}
			got.subscriptions.Add(1)
			if n%64 == 0 && nc.FlushTimeout(time.Second) != nil {
				return
			}
		}
	})
}

// consume makes durable consumers, several requests at a time.
func (l *lab) consume(ctx context.Context, who access.Identity, got *taken) {
	streams := []string{events.StreamFacts, events.StreamLogs, events.StreamSpans, events.BucketStream(events.BucketJobs), events.BucketStream(events.BucketNodes)}
	var n atomic.Int64
	l.again(ctx, who, func(nc *nats.Conn) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil && nc.IsConnected() {
					i := n.Add(1)
					stream, name := streams[int(i)%len(streams)], fmt.Sprint("flood-", i)
					create := fmt.Sprintf(`{"stream_name":%q,"config":{"name":%[2]q,"durable_name":%[2]q,"ack_policy":"none"}}`, stream, name)
					m, err := nc.Request("$JS.API.CONSUMER.CREATE."+stream+"."+name, []byte(create), time.Second)
					if err != nil {
						continue
					}
					if !strings.Contains(string(m.Data), `"error"`) {
						got.consumers.Add(1)
					}
				}
			})
		}
		all.Wait()
	})
}

// publish sends what it may, as large as it may.
func (l *lab) publish(ctx context.Context, who access.Identity, got *taken) {
	may, err := access.Of(who)
	if err != nil {
		return
	}
	var subjects []string
	for _, s := range []string{
		events.LogSubject("flood", string(who.Node), "0"), events.SpanSubject(events.ServiceAgent), events.HeartbeatSubject(who.Node), events.NoticeSubject("flood"),
		events.ProgressSubject("flood"), events.FactSubject(events.WorkerStarted{}.Type(), "flood"), events.Submitter{Name: who.Name}.Subject(events.JobSubmit{}.Type()),
		events.RequestSubject(events.ServiceRegistry, events.VerbAlive),
	} {
		if may.MayPublish(s) {
			subjects = append(subjects, s)
		}
	}
	body := make([]byte, min(who.Amounts().Payload, 60<<10))
	l.again(ctx, who, func(nc *nats.Conn) {
		for n := 0; ctx.Err() == nil && nc.IsConnected(); n++ {
			if nc.Publish(subjects[n%len(subjects)], body) != nil {
				return
			}
			got.messages.Add(1)
			if n%16 == 0 && nc.FlushTimeout(5*time.Second) != nil {
				return
			}
		}
	})
}

// ask asks the API of JetStream.
func (l *lab) ask(ctx context.Context, who access.Identity, got *taken) {
	l.again(ctx, who, func(nc *nats.Conn) {
		for ctx.Err() == nil && nc.IsConnected() {
			if _, err := nc.Request("$JS.API.STREAM.INFO."+events.StreamFacts, nil, time.Second); err == nil {
				got.requests.Add(1)
			}
		}
	})
}
