package jetstream_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// guarded is a broker with a directory of identities, and with the streams.
type guarded struct {
	dir    identity.Dir
	server *server.Server
	log    *lines
}

func newGuarded(t *testing.T, change ...func(*server.Options)) *guarded {
	t.Helper()
	dir, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	g := &guarded{dir: dir, log: &lines{}}
	o := server.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Auth: dir.Path(), LockOut: 2 * time.Second, Logger: g.log.logger()}
	for _, f := range change {
		f(&o)
	}
	g.server, err = server.Start(o)
	jetstreamtest.Must(t, err)
	t.Cleanup(g.server.Shutdown)
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{Server: g.server, Credentials: dir.Credentials("operator")})
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	jetstreamtest.Must(t, c.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	return g
}

// issue makes a user of a role; agents are those of node-a.
func (g *guarded) issue(t *testing.T, r access.Role, expires time.Duration) access.Identity {
	t.Helper()
	i := access.Identity{Role: r, Name: "test-" + string(r)}
	if r.OfNode() {
		i.Node = "node-a"
	}
	_, err := g.dir.Issue(i, expires)
	jetstreamtest.Must(t, err)
	return i
}

func (g *guarded) options(user string) jetstream.ConnectOptions {
	return jetstream.ConnectOptions{URL: g.server.ClientURL(), Name: user, Credentials: g.dir.Credentials(user), RootCA: g.dir.CA()}
}

func (g *guarded) connect(t *testing.T, user string) *jetstream.Conn {
	t.Helper()
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), g.options(user))
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// attempt makes one connection, as jetstream.Connect does again and again.
func attempt(o jetstream.ConnectOptions) error {
	opts := []nats.Option{nats.Timeout(jetstreamtest.Patience)}
	if o.RootCA != "" {
		opts = append(opts, nats.RootCAs(o.RootCA))
	}
	if o.Credentials != "" {
		opts = append(opts, nats.UserCredentials(o.Credentials))
	}
	if o.Secret != "" {
		opts = append(opts, nats.UserInfo("regroup", o.Secret))
	}
	nc, err := nats.Connect(o.URL, opts...)
	if err == nil {
		nc.Close()
	}
	return err
}

// refuses fails the test if the broker admits a client, or refuses it for another reason.
func refuses(t *testing.T, o jetstream.ConnectOptions) {
	t.Helper()
	var err error
	// A broker sends its first PING two seconds after a client has connected. On a busy machine
	// that may be before it has refused the client, which then has no answer and asks again.
	jetstreamtest.Await(t, "an answer of the broker", func() bool {
		err = attempt(o)
		return err == nil || !strings.Contains(err.Error(), "got 'PING'")
	})
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "auth") {
		t.Errorf("%v, want a refusal", err)
	}
}

// concrete replaces the wildcards of a pattern.
func concrete(pattern string) string {
	tokens := strings.Split(pattern, ".")
	for n, t := range tokens {
		if t == "*" || t == ">" {
			tokens[n] = "some-1"
		}
	}
	return strings.Join(tokens, ".")
}

// probes are subjects of every kind: those of all events, all that some role may use, those of
// other nodes, and the whole API of JetStream for each stream.
func probes(t *testing.T) []string {
	t.Helper()
	all := map[string]bool{}
	for _, row := range events.Catalog() {
		if row.Class == events.ClassCommand {
			all[events.CommandSubject(row.Type)] = true
		} else {
			all[events.FactSubject(row.Type, "demo-1")] = true
		}
	}
	for _, r := range access.Roles() {
		for _, node := range []ident.NodeID{"node-a", "node-b", "*"} {
			i := access.Identity{Role: r, Name: "other"}
			if r.OfNode() {
				i.Node = node
			}
			p, err := access.Of(i)
			jetstreamtest.Must(t, err)
			for _, s := range slices.Concat(p.Publish, p.Deny, p.Subscribe) {
				all[concrete(s)] = true
			}
		}
	}
	verbs := []string{
		"STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.INFO", "STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.RESTORE",
		"STREAM.PEER.REMOVE", "STREAM.LEADER.STEPDOWN", "DIRECT.GET", "CONSUMER.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST",
	}
	of := []string{"CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.MSG.NEXT", "CONSUMER.PAUSE", "CONSUMER.RESET", "CONSUMER.UNPIN", "CONSUMER.LEADER.STEPDOWN"}
	for _, s := range append(events.Streams(), "OTHER") {
		for _, v := range verbs {
			all["$JS.API."+v+"."+s] = true
		}
		for _, v := range of {
			for _, consumer := range append(events.ServiceNames(), "registry-evt", "registry-cmd", "mine") {
				all["$JS.API."+v+"."+s+"."+consumer] = true
			}
		}
		all["$JS.ACK."+s+".registry-evt.1.1.1.1.1"] = true
	}
	for _, s := range []string{"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.ACCOUNT.PURGE.x", "$SYS.REQ.SERVER.PING", "$SYS.ACCOUNT.x.DISCONNECT", "_INBOX.x", "anything"} {
		all[s] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// violations collects what the broker refuses to a raw client.
type violations struct {
	mu  sync.Mutex
	all map[string]bool // the quoted subjects, with "s " before those of subscriptions
}

func (v *violations) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	kind := ""
	if strings.Contains(strings.ToLower(err.Error()), "subscription") {
		kind = "s "
	}
	parts := strings.Split(err.Error(), `"`)
	if len(parts) < 2 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[kind+parts[1]] = true
}

func (v *violations) has(s string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[s]
}

// TestTheBrokerEnforcesEveryPermission: each role tries each subject, and the broker refuses
// exactly those that the table does not have.
func TestTheBrokerEnforcesEveryPermission(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	all := probes(t)
	for _, r := range access.Roles() {
		t.Run(string(r), func(t *testing.T) {
			i := g.issue(t, r, 0)
			may, err := access.Of(i)
			jetstreamtest.Must(t, err)
			refused := &violations{all: map[string]bool{}}
			nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.UserCredentials(g.dir.Credentials(i.Name)), nats.RootCAs(g.dir.CA()), nats.ErrorHandler(refused.note))
			jetstreamtest.Must(t, err)
			defer nc.Close()
			const last = "the.last.one"
			for _, s := range append(slices.Clone(all), last) {
				jetstreamtest.Must(t, nc.Publish(s, nil))
				sub, err := nc.SubscribeSync(s)
				jetstreamtest.Must(t, err)
				jetstreamtest.Must(t, nc.Flush())
				_ = sub.Unsubscribe() // a refused one is gone already
			}
			jetstreamtest.Must(t, nc.Flush())
			jetstreamtest.Await(t, "the last subject is refused", func() bool { return refused.has(last) && refused.has("s "+last) })
			permitted := 0
			for _, s := range all {
				if got, want := !refused.has(s), may.MayPublish(s); got != want {
					t.Errorf("%s may publish %s: %v, want %v", r, s, got, want)
				} else if got {
					permitted++
				}
				if got, want := !refused.has("s "+s), may.MaySubscribe(s); got != want {
					t.Errorf("%s may subscribe to %s: %v, want %v", r, s, got, want)
				}
			}
			if permitted == 0 {
				t.Error("nothing is permitted")
			}
		})
	}
}

// TestStrangersAreRefused: anonymous ones, those of another operator, and those that have expired,
// whose connection ends.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	refuses(t, jetstream.ConnectOptions{URL: g.server.ClientURL(), RootCA: g.dir.CA()})
	refuses(t, jetstream.ConnectOptions{URL: g.server.ClientURL(), RootCA: g.dir.CA(), Secret: "guessed"})
	other, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	refuses(t, jetstream.ConnectOptions{URL: g.server.ClientURL(), RootCA: g.dir.CA(), Credentials: other.Credentials("all")})
	for life := 4 * time.Second; ; life *= 2 {
		i := access.Identity{Role: access.RoleClient, Name: "lives-" + life.String()}
		_, err = g.dir.Issue(i, life)
		jetstreamtest.Must(t, err)
		last := time.Now().Add(life + time.Second)
		c, err := jetstream.Connect(jetstreamtest.Within(t, life+time.Second), g.options(i.Name))
		if err != nil && life < jetstreamtest.Patience { // a busy machine may take longer to connect
			continue
		}
		jetstreamtest.Must(t, err)
		t.Cleanup(c.Close)
		jetstreamtest.Await(t, "the connection of an expired user ends", func() bool { return !c.Connected() })
		// Claims are valid until the end of their last second.
		jetstreamtest.Await(t, "the last second is over", func() bool { return time.Now().After(last) })
		refuses(t, g.options(i.Name))
		return
	}
}

// TestARevokedUserIsDisconnected by the running broker, and a rotated one connects again with its
// new key.
func TestARevokedUserIsDisconnected(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	i := g.issue(t, access.RoleClient, 0)
	old := filepath.Join(t.TempDir(), "old.creds")
	text, err := os.ReadFile(g.dir.Credentials(i.Name))
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, os.WriteFile(old, text, 0o600))
	c := g.connect(t, i.Name)
	bystander := g.connect(t, "registry")

	_, err = g.dir.Rotate(i.Name, false)
	jetstreamtest.Must(t, err)
	jetstreamtest.Await(t, "the rotated user has connected again", func() bool { return c.Connects() > 1 && c.Connected() })
	jetstreamtest.Retry(t, "ask", func(ctx context.Context) error { return c.Ready(ctx) })
	o := g.options(i.Name)
	o.Credentials = old
	refuses(t, o)

	jetstreamtest.Must(t, g.dir.Revoke(i.Name))
	jetstreamtest.Await(t, "the revoked user is disconnected", func() bool { return !c.Connected() })
	refuses(t, g.options(i.Name))
	if bystander.Connects() != 1 || !bystander.Connected() {
		t.Errorf("another user has connected %d times", bystander.Connects())
	}
	jetstreamtest.WantCode(t, g.dir.Revoke(i.Name), errcode.NotFound)
}

// TestARefusedUserSaysSoOnce, however often it tries again, and until it is admitted again.
func TestARefusedUserSaysSoOnce(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	i := g.issue(t, access.RoleClient, 0)
	logged := &lines{}
	o := g.options(i.Name)
	o.Logger = logged.logger()
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), o)
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	jetstreamtest.Must(t, g.dir.Revoke(i.Name))
	before := g.log.count("authentication error")
	jetstreamtest.Await(t, "it was refused twice, and knows", func() bool {
		return g.log.count("authentication error") >= before+2 && logged.count("refuses this user") > 0
	})
	if n := logged.count("refuses this user"); n != 1 || logged.count("nats reports an error") != 0 {
		t.Errorf("it says so %d times:\n%s", n, logged.text.String())
	}
	_, err = g.dir.Issue(i, 0)
	jetstreamtest.Must(t, err)
	jetstreamtest.Await(t, "it is admitted with another key in the file", func() bool { return c.Connected() })
	jetstreamtest.Must(t, g.dir.Revoke(i.Name))
	jetstreamtest.Await(t, "it says so again", func() bool { return logged.count("refuses this user") == 2 })
}

// TestNobodyWritesThroughAnAnswer: the sender of a request decides where the answer goes, and the
// service may publish what the sender may not.
func TestNobodyWritesThroughAnAnswer(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	viewer := g.issue(t, access.RoleViewer, 0)
	registry := g.connect(t, "registry")
	subject := events.RequestSubject(events.ServiceRegistry, events.VerbProgress)
	background(t, func(ctx context.Context) error {
		return registry.Ports().Calls.Serve(ctx, subject, "", func(context.Context, []byte) ([]byte, error) { return []byte("answer"), nil })
	})
	c := g.connect(t, viewer.Name)
	call := func() {
		jetstreamtest.Retry(t, "call", func(ctx context.Context) error {
			_, err := c.Ports().Calls.Call(ctx, subject, nil)
			return err
		})
	}
	call()
	nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.UserCredentials(g.dir.Credentials(viewer.Name)), nats.RootCAs(g.dir.CA()))
	jetstreamtest.Must(t, err)
	defer nc.Close()
	stored := map[string]string{
		events.BucketSubject(events.BucketJobs, "demo-1"):          events.BucketStream(events.BucketJobs),
		events.FactSubject(events.JobSucceeded{}.Type(), "demo-1"): events.StreamFacts,
		events.FactSubject(events.WorkerExited{}.Type(), "demo-1"): events.StreamFacts,
	}
	for s := range stored {
		jetstreamtest.Must(t, nc.PublishRequest(subject, s, nil))
	}
	jetstreamtest.Must(t, nc.Flush())
	call() // the service has handled those before it
	for s, stream := range stored {
		_, err := registry.Ports().Log.Last(jetstreamtest.Within(t, jetstreamtest.Patience), stream, s)
		jetstreamtest.WantCode(t, err, errcode.NotFound)
	}
}

// TestWhatTheBrokerDoesNotPrevent: a consumer may deliver to any subject. What it delivers goes
// only to subjects that have a subscription of that very name, which is none of a stream, a
// document or a node's launches, and a service takes none of it for a request.
// If a new nats-server behaves in another way, the document is wrong.
func TestWhatTheBrokerDoesNotPrevent(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	registry := g.connect(t, "registry")
	fact, err := cloudevent.Encode(events.Event{ID: "1", Source: "/regroup/registry", Entity: "demo-1", Time: time.Now(), Body: events.JobRemoved{Job: "demo-1"}})
	jetstreamtest.Must(t, err)
	_, err = registry.Ports().Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), fact)
	jetstreamtest.Must(t, err)
	connect := func(r access.Role) (*nats.Conn, access.Identity) {
		i := g.issue(t, r, 0)
		nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix(i.InboxPrefix()), nats.UserCredentials(g.dir.Credentials(i.Name)), nats.RootCAs(g.dir.CA()))
		jetstreamtest.Must(t, err)
		t.Cleanup(nc.Close)
		return nc, i
	}
	agent, _ := connect(access.RoleAgent)
	launches, err := agent.SubscribeSync(events.LaunchSubject("node-a", "*"))
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, agent.Flush())
	stored := func(bucket, key string) bool {
		_, err := registry.Ports().Log.Last(jetstreamtest.Within(t, jetstreamtest.Patience), events.BucketStream(bucket), events.BucketSubject(bucket, key))
		return err == nil
	}
	asked := make(chan string, 100)
	request := events.RequestSubject(events.ServiceRegistry, events.VerbProgress)
	background(t, func(ctx context.Context) error {
		return registry.Ports().Calls.Serve(ctx, request, "", func(_ context.Context, data []byte) ([]byte, error) {
			asked <- string(data)
			return nil, nil
		})
	})
	for _, r := range []access.Role{access.RoleViewer, access.RoleClient, access.RoleParticipant} {
		nc, i := connect(r)
		jetstreamtest.Retry(t, "call", func(ctx context.Context) error {
			_, err := nc.RequestWithContext(ctx, request, []byte("honest"))
			return err
		})
		deliver := func(n int, subject string) {
			name := fmt.Sprintf("%s-%d", r, n)
			create := fmt.Sprintf(`{"stream_name": %q, "config": {"name": %q, "deliver_subject": %q, "deliver_policy": "all", "ack_policy": "none"}}`, events.StreamFacts, name, subject)
			m, err := nc.Request("$JS.API.CONSUMER.CREATE."+events.StreamFacts+"."+name, []byte(create), jetstreamtest.Patience)
			jetstreamtest.Must(t, err)
			if strings.Contains(string(m.Data), `"error"`) {
				t.Fatalf("%s", m.Data)
			}
		}
		deliver(1, events.BucketSubject(events.BucketJobs, "forged"))
		deliver(2, events.LaunchSubject("node-a", "forged"))
		deliver(3, request)
		own, err := nc.SubscribeSync(i.InboxPrefix() + ".x")
		jetstreamtest.Must(t, err)
		jetstreamtest.Must(t, nc.Flush())
		deliver(4, i.InboxPrefix()+".x")
		if _, err := own.NextMsg(jetstreamtest.Patience); err != nil { // the last of the four works
			t.Fatalf("%s: %v", r, err)
		}
		_, err = nc.Request(request, []byte("honest"), jetstreamtest.Patience)
		jetstreamtest.Must(t, err)
	}
	for len(asked) > 0 {
		if got := <-asked; got != "honest" {
			t.Errorf("a request was forged: %s", got)
		}
	}
	if m, err := launches.NextMsg(time.Second); err == nil {
		t.Errorf("a launch was forged: %s %q", m.Subject, m.Reply)
	}
	if stored(events.BucketJobs, "forged") {
		t.Error("a document was forged")
	}
}

// TestCertificatesAreReplaced without a restart.
func TestCertificatesAreReplaced(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	serial := func() string {
		var shown string
		o := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error { //nolint:gosec // the test reads the certificate
			shown = s.PeerCertificates[0].SerialNumber.String()
			return nil
		}}
		nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.UserCredentials(g.dir.Credentials("registry")), nats.Secure(o))
		jetstreamtest.Must(t, err)
		nc.Close()
		return shown
	}
	before := serial()
	jetstreamtest.Must(t, g.dir.Certify([]string{"127.0.0.1"}))
	if after := serial(); after == before || after == "" {
		t.Errorf("the certificate %q is still shown", after)
	}
	g.connect(t, "registry") // verifies it
}

// TestDiscoveryHearsOfClosedConnections with the credentials of the system account.
func TestDiscoveryHearsOfClosedConnections(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	o := g.options("discovery")
	o.System = server.System{Credentials: g.dir.Credentials(identity.SystemUser)}
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), o)
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	ends, ready := make(chan broker.Link, 16), make(chan struct{})
	background(t, func(ctx context.Context) error {
		return c.Ports().Links.Ends(ctx, func(l broker.Link) { ends <- l }, func() { close(ready) })
	})
	next(t, ready, "the reports are heard")
	other, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), g.options("registry"))
	jetstreamtest.Must(t, err)
	link := other.Ports().Links.Own()
	other.Close()
	for !link.Same(next(t, ends, "the end of the connection is reported")) {
	}
}

// TestRoutesAskForThePassword: brokers of one directory form a cluster, begun by one of them, and a
// broker without it cannot join.
func TestRoutesAskForThePassword(t *testing.T) {
	t.Parallel()
	dir, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	log := &lines{}
	var route string
	start := func(name string, c server.Cluster) *server.Server {
		s, err := server.Start(server.Options{Name: name, StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Auth: dir.Path(), Cluster: c, Logger: log.logger()})
		jetstreamtest.Must(t, err)
		t.Cleanup(s.Shutdown)
		return s
	}
	addresses := jetstreamtest.FreeAddresses(t, 2)
	route = addresses[0]
	first := start("one", server.Cluster{Name: "test", Listen: route, First: true})
	start("two", server.Cluster{Name: "test", Listen: addresses[1], Routes: []string{route}})
	jetstreamtest.Await(t, "the second broker is in the cluster", func() bool { return len(first.Peers()) == 2 })
	host, port := "127.0.0.1", 0
	_, err = fmt.Sscanf(route, host+":%d", &port)
	jetstreamtest.Must(t, err)
	for name, password := range map[string]string{"without": "", "another": "guessed"} {
		stranger, err := natsserver.NewServer(&natsserver.Options{
			ServerName: "stranger-" + name, Host: host, Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true,
			Cluster: natsserver.ClusterOpts{Name: "test", Host: host, Port: natsserver.RANDOM_PORT, TLSConfig: routeTLS(t, dir), TLSTimeout: 5},
			Routes:  natsserver.RoutesFromStr("nats-route://system:" + password + "@" + route),
		})
		jetstreamtest.Must(t, err)
		refusals := log.count("authentication error")
		stranger.Start()
		jetstreamtest.Await(t, "the stranger is refused", func() bool { return log.count("authentication error") > refusals })
		stranger.Shutdown()
		stranger.WaitForShutdown()
	}
}

// routeTLS is what a stranger would need beside the password.
func routeTLS(t *testing.T, dir identity.Dir) *tls.Config {
	t.Helper()
	c, err := dir.RouteTLS()
	jetstreamtest.Must(t, err)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.GetCertificate(nil) }
	return c
}

// TestOnlyOwnersReadTheDirectory: every file of it.
func TestOnlyOwnersReadTheDirectory(t *testing.T) {
	dir, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	jetstreamtest.Must(t, filepath.WalkDir(dir.Path(), func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
	text, err := os.ReadFile(dir.CA())
	jetstreamtest.Must(t, err)
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		t.Error("the authority has no certificate")
	}
	_, err = identity.Init(dir.Path(), nil)
	jetstreamtest.WantCode(t, err, errcode.Conflict)
	_, err = dir.Issue(access.Identity{Role: access.RoleClient, Name: "registry"}, 0)
	jetstreamtest.WantCode(t, err, errcode.Conflict)
	_, err = identity.Open(t.TempDir())
	jetstreamtest.WantCode(t, err, errcode.NotFound)
}

// lines is a log that can be searched.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(strings.ToLower(l.text.String()), text)
}
