package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// TestAnswersDoNotLeaveTheAccountOfWhoAsks: people, gateways and agents may ask the API of
// JetStream, and publish what is stored, which the broker acknowledges. Wherever they want the
// answer to go, it is none of the streams' messages.
func TestAnswersDoNotLeaveTheAccountOfWhoAsks(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	owner, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix("_INBOX_all"), nats.UserCredentials(g.dir.Credentials("all")), nats.RootCAs(g.dir.CA()))
	jetstreamtest.Must(t, err)
	t.Cleanup(owner.Close)
	stored := func(stream, subject string) bool {
		m, err := owner.Request("$JS.API.STREAM.MSG.GET."+stream, fmt.Appendf(nil, `{"last_by_subj": %q}`, subject), jetstreamtest.Patience)
		jetstreamtest.Must(t, err)
		return !strings.Contains(string(m.Data), "10037") // no message found
	}
	for _, r := range access.Roles() {
		if slices.Contains(append(events.ServiceNames(), string(access.RoleOperator), string(access.RoleAll)), string(r)) {
			continue // they write the streams and documents anyway
		}
		i := g.issue(t, r, 0)
		nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix(i.InboxPrefix()), nats.UserCredentials(g.dir.Credentials(i.Name)), nats.RootCAs(g.dir.CA()))
		jetstreamtest.Must(t, err)
		t.Cleanup(nc.Close)
		asks := map[string]string{
			"$JS.API.STREAM.INFO." + events.StreamFacts: "",
		}
		may, err := access.Of(i)
		jetstreamtest.Must(t, err)
		for _, s := range []string{
			events.CommandSubject(events.JobStop{}.Type()), events.Submitter{Name: i.Name}.Subject(events.JobStop{}.Type()), events.FactSubject(events.WorkerExited{}.Type(), "demo-1"),
			events.LogSubject("demo-1", "node-a", "0"), events.SpanSubject(events.ServiceAgent), events.SpanSubject(events.ServiceGateway),
		} {
			if may.MayPublish(s) {
				asks[s] = "{}"
			}
		}
		for _, s := range []string{events.StreamFacts, events.StreamLaunches} {
			if may.MayPublish("$JS.API.STREAM.MSG.GET." + s) {
				asks["$JS.API.STREAM.MSG.GET."+s] = `{"seq": 1}`
			}
		}
		n := 0
		for subject, body := range asks {
			m, err := nc.Request(subject, []byte(body), jetstreamtest.Patience)
			jetstreamtest.Must(t, err)
			if strings.Contains(string(m.Data), "not enabled") {
				t.Errorf("%s: the answer to %s is %s", r, subject, m.Data)
			}
			for _, at := range []string{
				events.BucketSubject(events.BucketJobs, fmt.Sprint(r, n)), events.FactSubject(events.JobRemoved{}.Type(), fmt.Sprint(r, n)), events.LaunchSubject("node-a", ident.JobID(fmt.Sprint(r, n))),
			} {
				jetstreamtest.Must(t, nc.PublishRequest(subject, at, []byte(body)))
			}
			n++
		}
		// The broker handles the requests of a connection in turn, or at least has begun to: what
		// follows them takes as long.
		for range 20 {
			_, err := nc.Request("$JS.API.STREAM.INFO."+events.StreamFacts, nil, jetstreamtest.Patience)
			jetstreamtest.Must(t, err)
		}
		for n := range n {
			for stream, at := range map[string]string{
				events.BucketStream(events.BucketJobs): events.BucketSubject(events.BucketJobs, fmt.Sprint(r, n)),
				events.StreamFacts:                     events.FactSubject(events.JobRemoved{}.Type(), fmt.Sprint(r, n)),
				events.StreamLaunches:                  events.LaunchSubject("node-a", ident.JobID(fmt.Sprint(r, n))),
			} {
				if stored(stream, at) {
					t.Errorf("%s: an answer is stored in %s on %s", r, stream, at)
				}
			}
		}
	}
}

// TestAnAnswerIsNoHarmfulRequest: what an account imports can be asked by an answer too, whatever
// the sender may publish. A consumer that has no message answers without a body, as a request to
// delete something must be.
func TestAnAnswerIsNoHarmfulRequest(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	const durable = "registry-evt"
	background(t, func(ctx context.Context) error {
		k := broker.Consumer{Stream: events.StreamFacts, Durable: durable, Subjects: []string{events.AllFacts}}
		return g.connect(t, "registry").Ports().Log.Consume(ctx, k, func(d broker.Delivery) { d.Ack() })
	})
	owner, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix("_INBOX_all"), nats.UserCredentials(g.dir.Credentials("all")), nats.RootCAs(g.dir.CA()))
	jetstreamtest.Must(t, err)
	t.Cleanup(owner.Close)
	answer := func(subject string, body []byte) string {
		m, err := owner.Request(subject, body, jetstreamtest.Patience)
		jetstreamtest.Must(t, err)
		return string(m.Data)
	}
	there := func() bool {
		return !strings.Contains(answer("$JS.API.CONSUMER.INFO."+events.StreamFacts+"."+durable, nil), `"error"`)
	}
	jetstreamtest.Await(t, "the service has its consumer", there)
	for _, r := range []access.Role{access.RoleViewer, access.RoleSubmitter, access.RoleAgent, access.RoleParticipant, access.RoleClient} {
		i := g.issue(t, r, 0)
		nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix(i.InboxPrefix()), nats.UserCredentials(g.dir.Credentials(i.Name)), nats.RootCAs(g.dir.CA()))
		jetstreamtest.Must(t, err)
		t.Cleanup(nc.Close)
		command := events.CommandSubject(events.JobStop{}.Type())
		for _, at := range []string{command, events.Submitter{Name: "ada"}.Subject(events.JobStop{}.Type())} {
			jetstreamtest.Must(t, nc.PublishRequest("$JS.API.STREAM.INFO."+events.StreamFacts, at, nil))
		}
		if r != access.RoleAgent { // which has no consumers
			own := fmt.Sprint("own-", r)
			create := fmt.Sprintf(`{"stream_name": %q, "config": {"name": %q, "filter_subject": "regroup.evt.none", "ack_policy": "none"}}`, events.StreamFacts, own)
			m, err := nc.Request("$JS.API.CONSUMER.CREATE."+events.StreamFacts+"."+own+".regroup.evt.none", []byte(create), jetstreamtest.Patience)
			jetstreamtest.Must(t, err)
			if strings.Contains(string(m.Data), `"error"`) {
				t.Fatalf("%s", m.Data)
			}
			next := "$JS.API.CONSUMER.MSG.NEXT." + events.StreamFacts + "." + own
			empty, err := nc.Request(next, []byte(`{"no_wait": true}`), jetstreamtest.Patience)
			jetstreamtest.Must(t, err)
			if len(empty.Data) != 0 {
				t.Fatalf("the consumer has a message: %s", empty.Data)
			}
			for _, at := range []string{"$JS.API.CONSUMER.DELETE." + events.StreamFacts + "." + durable, "$JS.API.STREAM.DELETE." + events.StreamFacts, "$JS.API.STREAM.PURGE." + events.StreamFacts} {
				jetstreamtest.Must(t, nc.PublishRequest(next, at, []byte(`{"no_wait": true}`)))
			}
		}
		for range 20 { // what follows takes as long
			_, err := nc.Request("$JS.API.STREAM.INFO."+events.StreamFacts, nil, jetstreamtest.Patience)
			jetstreamtest.Must(t, err)
		}
		if !there() {
			t.Errorf("%s has deleted the consumer of a service, or its stream", r)
		}
		if info := answer("$JS.API.STREAM.INFO."+events.StreamCommands, nil); r != access.RoleClient && r != access.RoleParticipant && !strings.Contains(info, `"messages":0`) {
			t.Errorf("%s has stored a command: %s", r, info)
		}
	}
}

// guardedCluster is three brokers with the directory of identities, and with the streams.
func guardedCluster(t *testing.T) []*guarded {
	t.Helper()
	dir, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	routes := jetstreamtest.FreeAddresses(t, 3)
	all := make([]*guarded, len(routes))
	for n := range all {
		g := &guarded{dir: dir, log: &lines{}}
		g.server, err = server.Start(server.Options{
			Name: fmt.Sprint("node-", n), StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Auth: dir.Path(), Logger: g.log.logger(),
			Cluster: server.Cluster{Name: "test", Listen: routes[n], Routes: routes},
		})
		jetstreamtest.Must(t, err)
		t.Cleanup(g.server.Shutdown)
		all[n] = g
	}
	for _, g := range all {
		jetstreamtest.Await(t, "each broker has joined the cluster", g.server.Current)
	}
	c := all[0].connect(t, string(access.RoleOperator))
	jetstreamtest.Must(t, c.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), len(routes)))
	return all
}

// TestThoseOutsideUseEachBroker: a gateway may be connected to a broker that leads no stream, and
// the services to another one. It follows documents and facts, its commands arrive, and a call is
// answered, or refused at once because nobody serves it.
func TestThoseOutsideUseEachBroker(t *testing.T) {
	t.Parallel()
	all := guardedCluster(t)
	registry := all[0].connect(t, "registry").Ports()
	commands := make(chan string, 100)
	background(t, func(ctx context.Context) error {
		k := broker.Consumer{Stream: events.StreamCommands, Durable: "registry-cmd", Subjects: []string{events.AllCommands}}
		return registry.Log.Consume(ctx, k, func(d broker.Delivery) {
			commands <- string(d.Data)
			d.Ack()
		})
	})
	const documents = 20
	for n, g := range all {
		i := access.Identity{Role: access.RoleGateway, Name: fmt.Sprint("gateway-", n)}
		_, err := g.dir.Issue(i, 0)
		jetstreamtest.Must(t, err)
		gateway := g.connect(t, i.Name).Ports()

		verb := events.RequestSubject(events.ServiceRegistry, events.VerbAlive)
		if _, err := gateway.Calls.Call(context.Background(), verb, nil); !errors.Is(err, errcode.ErrUnavailable) || !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("broker %d: a call that nobody serves ends with %v", n, err)
		}
		stop := background(t, func(ctx context.Context) error {
			return registry.Calls.Serve(ctx, verb, "", func(context.Context, []byte) ([]byte, error) { return []byte("yes"), nil })
		})
		jetstreamtest.Retry(t, "call", func(context.Context) error {
			// A request can be lost, while the brokers pass on who serves it. So one asks again.
			answer, err := gateway.Calls.Call(jetstreamtest.Within(t, jetstreamtest.Patience/20), verb, nil)
			if err == nil && string(answer) != "yes" {
				t.Errorf("broker %d: the answer is %q", n, answer)
			}
			return err
		})
		_ = stop()

		keys, facts := make(chan string, documents*len(all)), make(chan string, documents*len(all))
		background(t, func(ctx context.Context) error {
			return gateway.Buckets.Bucket(events.BucketJobs).Watch(ctx, func(key string, _ []byte, _ uint64) { keys <- key }, nil)
		})
		background(t, func(ctx context.Context) error {
			return gateway.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: broker.FromFirst}, func(m broker.Stored) error {
				facts <- m.Subject
				return nil
			}, nil)
		})
		for d := range documents {
			key := fmt.Sprint("job-", n, "-", d)
			jetstreamtest.Retry(t, "save", func(ctx context.Context) error {
				_, err := registry.Buckets.Bucket(events.BucketJobs).Save(ctx, key, []byte("{}"), 0)
				return err
			})
			jetstreamtest.Retry(t, "publish a fact", func(ctx context.Context) error {
				_, err := registry.Log.Publish(ctx, broker.Message{Subject: events.FactSubject(events.JobRemoved{}.Type(), key), ID: key})
				return err
			})
			jetstreamtest.Retry(t, "publish a command", func(ctx context.Context) error {
				_, err := gateway.Log.Publish(ctx, broker.Message{Subject: events.CommandSubject(events.JobStop{}.Type()), ID: key, Data: []byte(key)})
				return err
			})
			if got := next(t, commands, "the command arrives"); got != key {
				t.Errorf("broker %d: command %s, want %s", n, got, key)
			}
		}
		for seen := 0; seen < documents; {
			if strings.HasPrefix(next(t, keys, "a document is seen"), fmt.Sprint("job-", n, "-")) {
				seen++
			}
		}
		for seen := 0; seen < documents; {
			if strings.Contains(next(t, facts, "a fact is seen"), fmt.Sprint("job-", n, "-")) {
				seen++
			}
		}
	}
}

// TestOtherLibrariesWatchFromOutside: those of NATS let a consumer deliver to an inbox, and answer
// the broker that controls its flow.
func TestOtherLibrariesWatchFromOutside(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	bucket := g.connect(t, "registry").Ports().Buckets.Bucket(events.BucketJobs)
	const documents = 300
	for n := range documents {
		jetstreamtest.Retry(t, "save", func(ctx context.Context) error {
			_, err := bucket.Save(ctx, fmt.Sprint("job-", n), make([]byte, 16<<10), 0)
			return err
		})
	}
	i := g.issue(t, access.RoleViewer, 0)
	refused := &violations{all: map[string]bool{}}
	nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix(i.InboxPrefix()), nats.UserCredentials(g.dir.Credentials(i.Name)), nats.RootCAs(g.dir.CA()), nats.ErrorHandler(refused.note))
	jetstreamtest.Must(t, err)
	t.Cleanup(nc.Close)
	api, err := js.New(nc)
	jetstreamtest.Must(t, err)
	kv, err := api.KeyValue(jetstreamtest.Within(t, jetstreamtest.Patience), events.BucketJobs)
	jetstreamtest.Must(t, err)
	// Its consumer ends by itself: nobody may delete one.
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	w, err := kv.WatchAll(ctx)
	jetstreamtest.Must(t, err)
	for n := 0; ; n++ {
		if next(t, w.Updates(), "a document is seen") == nil {
			if n != documents {
				t.Errorf("%d documents are seen, want %d", n, documents)
			}
			break
		}
	}
	for s := range refused.all {
		t.Errorf("refused: %s", s)
	}
}
