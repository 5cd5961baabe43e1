package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// open starts a server that is stopped at the end, and connects to it.
func open(t *testing.T, o jetstream.ServerOptions) (*jetstream.Server, *jetstream.Conn, func()) {
	t.Helper()
	s, err := jetstream.StartServer(o)
	must(t, err)
	c, err := jetstream.Connect(within(t, patience), jetstream.ConnectOptions{Server: s, Name: o.Name})
	must(t, err)
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			c.Close()
			s.Shutdown()
		}
	}
	t.Cleanup(stop)
	return s, c, stop
}

// TestClusterStartsWithOneServer: the data of a single server is kept when it starts a cluster; a
// second and a third join, everything is stored three times, and the first may leave.
func TestClusterStartsWithOneServer(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 3)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	_, c, stop := open(t, jetstream.ServerOptions{Name: "a", StoreDir: dirs[0], Listen: "127.0.0.1:0"})
	must(t, c.Ensure(within(t, patience), 1))
	rev, err := c.Ports().Buckets.Bucket(events.BucketJobs).Save(within(t, patience), "job-a", []byte("alone"), 0)
	must(t, err)
	stop()

	began := time.Now()
	first := jetstream.ServerOptions{Name: "a", StoreDir: dirs[0], Listen: "127.0.0.1:0", Cluster: jetstream.Cluster{Listen: routes[0], First: true}}
	_, c, stop = open(t, first)
	must(t, c.EnsureAtLeast(within(t, patience), 1))
	wantDocument(t, c, "alone", rev)
	t.Logf("alone it works after %v", time.Since(began).Round(time.Millisecond))
	stop()
	a, c, stop := open(t, first) // restart it, as the first of a cluster that no other server has joined
	must(t, c.EnsureAtLeast(within(t, patience), 1))
	wantDocument(t, c, "alone", rev)

	join := func(i int, name string) (*jetstream.Server, *jetstream.Conn) {
		s, c, _ := open(t, jetstream.ServerOptions{
			Name: name, StoreDir: dirs[i], Listen: "127.0.0.1:0", Cluster: jetstream.Cluster{Listen: routes[i], Routes: []string{routes[0]}, Join: true},
		})
		must(t, c.EnsureAtLeast(within(t, patience), 1))
		return s, c
	}
	b, _ := join(1, "b")
	third, fromThird := join(2, "c")
	await(t, "one of them leads all three", func() bool {
		return slices.ContainsFunc([]*jetstream.Server{a, b, third}, func(s *jetstream.Server) bool { return len(s.Peers()) == 3 })
	})
	must(t, c.EnsureAtLeast(within(t, patience), 3))
	must(t, fromThird.EnsureAtLeast(within(t, patience), 1)) // removes nothing
	threeCopies(t, c)
	must(t, c.Verify(within(t, patience)))
	stop()
	wantDocument(t, fromThird, "alone", rev)
	retry(t, "save with two", func(ctx context.Context) error {
		_, err := fromThird.Ports().Buckets.Bucket(events.BucketJobs).Save(ctx, "job-b", []byte("two"), 0)
		return err
	})
}

// TestServersThatJoinStartNoClusterOfTheirOwn: two start at the same time, and reach each other
// before the first of the cluster. They elect nobody, and what is stored there is kept.
func TestServersThatJoinStartNoClusterOfTheirOwn(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 3)
	first := jetstream.ServerOptions{Name: "a", StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Cluster: jetstream.Cluster{Listen: routes[0], First: true}}
	_, c, stop := open(t, first)
	must(t, c.EnsureAtLeast(within(t, patience), 1))
	rev, err := c.Ports().Buckets.Bucket(events.BucketJobs).Save(within(t, patience), "job-a", []byte("alone"), 0)
	must(t, err)
	stop()

	join := func(i int, name string, to ...string) *jetstream.Server {
		s, _, _ := open(t, jetstream.ServerOptions{
			Name: name, StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Cluster: jetstream.Cluster{Listen: routes[i], Routes: to, Join: true},
		})
		return s
	}
	b, third := join(1, "b", routes[0]), join(2, "c", routes[0], routes[1])
	await(t, "both have asked in vain to be elected", func() bool {
		if leads := len(b.Peers()) + len(third.Peers()); leads > 0 {
			t.Fatalf("one of them leads a cluster of their own: %v %v", b.Peers(), third.Peers())
		}
		return b.Term() > 1 && third.Term() > 1
	})
	a, c, stop := open(t, first)
	must(t, c.EnsureAtLeast(within(t, patience), 1))
	await(t, "one of them leads all three", func() bool {
		return slices.ContainsFunc([]*jetstream.Server{a, b, third}, func(s *jetstream.Server) bool { return len(s.Peers()) == 3 })
	})
	must(t, c.EnsureAtLeast(within(t, patience), 3))
	threeCopies(t, c)
	wantDocument(t, c, "alone", rev)
	stop()
}

// TestAServerWithIdentitiesWaitsToBeAddedToo: its system account has another name.
func TestAServerWithIdentitiesWaitsToBeAddedToo(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 2)
	dir, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	must(t, err)
	s, err := jetstream.StartServer(jetstream.ServerOptions{
		Name: "b", StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Auth: dir.Path(), Cluster: jetstream.Cluster{Listen: routes[1], Routes: routes[:1], Join: true},
	})
	must(t, err)
	t.Cleanup(s.Shutdown)
	await(t, "it knows no cluster, and waits for one", s.WaitsToBeAdded)
}

// TestServicesKeepTheirConsumers: when everything is stored three times, so is what each service
// has settled. The first server may be lost at once.
func TestServicesKeepTheirConsumers(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 3)
	start := func(i int, name string, k jetstream.Cluster) (*jetstream.Conn, func()) {
		k.Listen = routes[i]
		_, c, stop := open(t, jetstream.ServerOptions{Name: name, StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Cluster: k})
		return c, stop
	}
	c, stop := start(0, "a", jetstream.Cluster{First: true})
	must(t, c.EnsureAtLeast(within(t, patience), 1))
	for n := range 4 {
		_, err := c.Ports().Log.Publish(within(t, patience), broker.Message{Subject: backedUp, ID: fmt.Sprint(n), Data: fmt.Append(nil, n)})
		must(t, err)
	}
	consume(t, c, 2)
	start(1, "b", jetstream.Cluster{Routes: routes[:1], Join: true})
	third, _ := start(2, "c", jetstream.Cluster{Routes: routes[:2], Join: true})
	must(t, third.EnsureAtLeast(within(t, patience), 1))
	retry(t, "grow", func(ctx context.Context) error { return c.EnsureAtLeast(ctx, 3) })
	threeCopies(t, third)
	stop()
	if got, want := consume(t, third, 2), []string{"2", "3"}; !slices.Equal(got, want) {
		t.Errorf("the consumer goes on with %q, want %q", got, want)
	}
}

// TestInterruptedFoundingIsRepeated: the first server ended while its companion was still a member.
func TestInterruptedFoundingIsRepeated(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 2)
	dir := t.TempDir()
	member := filepath.Join(dir, "companion")
	start := func(name, dir string, own, other int) (*jetstream.Server, func()) {
		s, _, stop := open(t, jetstream.ServerOptions{
			Name: name, StoreDir: dir, Listen: "127.0.0.1:0", Cluster: jetstream.Cluster{Listen: routes[own], Routes: []string{routes[other]}},
		})
		return s, stop
	}
	a, stop := start("a", dir, 0, 1)
	b, stopCompanion := start("a-companion", member, 1, 0)
	await(t, "one of them leads both", func() bool { return len(a.Peers()) == 2 || len(b.Peers()) == 2 })
	stopCompanion()
	stop()
	_, c, _ := open(t, jetstream.ServerOptions{Name: "a", StoreDir: dir, Listen: "127.0.0.1:0", Cluster: jetstream.Cluster{Listen: routes[0], First: true}})
	if _, err := os.Stat(member); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the companion's store is still there: %v", err)
	}
	must(t, c.EnsureAtLeast(within(t, patience), 1))
}

func threeCopies(t *testing.T, c *jetstream.Conn) {
	t.Helper()
	await(t, "everything is there three times", func() bool {
		n, err := c.Copies(within(t, patience))
		return err == nil && n == 3
	})
}

func wantDocument(t *testing.T, c *jetstream.Conn, want string, rev uint64) {
	t.Helper()
	retry(t, "load", func(ctx context.Context) error {
		value, at, err := c.Ports().Buckets.Bucket(events.BucketJobs).Load(ctx, "job-a")
		if err == nil && (string(value) != want || at != rev) {
			t.Errorf("the document is %q at %d, want %q at %d", value, at, want, rev)
		}
		return err
	})
}

func TestVerifyReportsFewerReplicas(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.Three(t)
	must(t, s.Conn.Verify(within(t, patience)))
	_, j := raw(t, s.URL())
	st, err := j.Stream(within(t, patience), "KV_jobs")
	must(t, err)
	cfg := st.CachedInfo().Config
	cfg.Replicas = 1
	_, err = j.UpdateStream(within(t, patience), cfg)
	must(t, err)
	err = s.Conn.Verify(within(t, patience))
	wantCode(t, err, errcode.Invalid)
	if want := "stream KV_jobs: replicas is 1, want 3 as others have"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q is not in: %v", want, err)
	}
	must(t, s.Conn.Ensure(within(t, patience), 3))
	must(t, s.Conn.Verify(within(t, patience)))

	must(t, j.DeleteStream(within(t, patience), events.StreamCommands)) // retention cannot be changed
	commands := js.StreamConfig{Name: events.StreamCommands, Subjects: []string{events.AllCommands}, Replicas: 3}
	_, err = j.CreateStream(within(t, patience), commands)
	must(t, err)
	err = s.Conn.Verify(within(t, patience))
	if want := "stream REGROUP_CMD: retention is Limits, want WorkQueue"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%q is not in: %v", want, err)
	}
}
