package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// open starts a server that is stopped at the end, and connects to it.
func open(t *testing.T, o server.Options) (*server.Server, *jetstream.Conn, func()) {
	t.Helper()
	s, err := server.Start(o)
	jetstreamtest.Must(t, err)
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{Server: s, Name: o.Name})
	jetstreamtest.Must(t, err)
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
	_, c, stop := open(t, server.Options{Name: "a", StoreDir: dirs[0], Listen: "127.0.0.1:0"})
	jetstreamtest.Must(t, c.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	rev, err := c.Ports().Buckets.Bucket(events.BucketJobs).Save(jetstreamtest.Within(t, jetstreamtest.Patience), "job-a", []byte("alone"), 0)
	jetstreamtest.Must(t, err)
	stop()

	began := time.Now()
	first := server.Options{Name: "a", StoreDir: dirs[0], Listen: "127.0.0.1:0", Cluster: server.Cluster{Listen: routes[0], First: true}}
	_, c, stop = open(t, first)
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	wantDocument(t, c, "alone", rev)
	t.Logf("alone it works after %v", time.Since(began).Round(time.Millisecond))
	stop()
	a, c, stop := open(t, first) // restart it, as the first of a cluster that no other server has joined
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	wantDocument(t, c, "alone", rev)

	join := func(i int, name string) (*server.Server, *jetstream.Conn) {
		s, c, _ := open(t, server.Options{
			Name: name, StoreDir: dirs[i], Listen: "127.0.0.1:0", Cluster: server.Cluster{Listen: routes[i], Routes: []string{routes[0]}, Join: true},
		})
		jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
		return s, c
	}
	b, _ := join(1, "b")
	third, fromThird := join(2, "c")
	jetstreamtest.Await(t, "one of them leads all three", func() bool {
		return slices.ContainsFunc([]*server.Server{a, b, third}, func(s *server.Server) bool { return len(s.Peers()) == 3 })
	})
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 3))
	jetstreamtest.Must(t, fromThird.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1)) // removes nothing
	threeCopies(t, c)
	jetstreamtest.Must(t, c.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)))
	stop()
	wantDocument(t, fromThird, "alone", rev)
	jetstreamtest.Retry(t, "save with two", func(ctx context.Context) error {
		_, err := fromThird.Ports().Buckets.Bucket(events.BucketJobs).Save(ctx, "job-b", []byte("two"), 0)
		return err
	})
}

// TestServersThatJoinStartNoClusterOfTheirOwn: two start at the same time, and reach each other
// before the first of the cluster. They elect nobody, and what is stored there is kept.
func TestServersThatJoinStartNoClusterOfTheirOwn(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 3)
	first := server.Options{Name: "a", StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Cluster: server.Cluster{Listen: routes[0], First: true}}
	_, c, stop := open(t, first)
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	rev, err := c.Ports().Buckets.Bucket(events.BucketJobs).Save(jetstreamtest.Within(t, jetstreamtest.Patience), "job-a", []byte("alone"), 0)
	jetstreamtest.Must(t, err)
	stop()

	join := func(i int, name string, to ...string) *server.Server {
		s, _, _ := open(t, server.Options{
			Name: name, StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Cluster: server.Cluster{Listen: routes[i], Routes: to, Join: true},
		})
		return s
	}
	b, third := join(1, "b", routes[0]), join(2, "c", routes[0], routes[1])
	jetstreamtest.Await(t, "both have asked in vain to be elected", func() bool {
		if leads := len(b.Peers()) + len(third.Peers()); leads > 0 {
			t.Fatalf("one of them leads a cluster of their own: %v %v", b.Peers(), third.Peers())
		}
		return b.Term() > 1 && third.Term() > 1
	})
	a, c, stop := open(t, first)
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	jetstreamtest.Await(t, "one of them leads all three", func() bool {
		return slices.ContainsFunc([]*server.Server{a, b, third}, func(s *server.Server) bool { return len(s.Peers()) == 3 })
	})
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 3))
	threeCopies(t, c)
	wantDocument(t, c, "alone", rev)
	stop()
}

// TestAServerWithIdentitiesWaitsToBeAddedToo: its system account has another name.
func TestAServerWithIdentitiesWaitsToBeAddedToo(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 2)
	dir, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	s, err := server.Start(server.Options{
		Name: "b", StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Auth: dir.Path(), Cluster: server.Cluster{Listen: routes[1], Routes: routes[:1], Join: true},
	})
	jetstreamtest.Must(t, err)
	t.Cleanup(s.Shutdown)
	jetstreamtest.Await(t, "it knows no cluster, and waits for one", s.WaitsToBeAdded)
}

// TestServicesKeepTheirConsumers: when everything is stored three times, so is what each service
// has settled. The first server may be lost at once.
func TestServicesKeepTheirConsumers(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 3)
	start := func(i int, name string, k server.Cluster) (*jetstream.Conn, func()) {
		k.Listen = routes[i]
		_, c, stop := open(t, server.Options{Name: name, StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Cluster: k})
		return c, stop
	}
	c, stop := start(0, "a", server.Cluster{First: true})
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	for n := range 4 {
		_, err := c.Ports().Log.Publish(jetstreamtest.Within(t, jetstreamtest.Patience), broker.Message{Subject: "regroup.evt.job.demo-1.submitted", ID: fmt.Sprint(n), Data: fmt.Append(nil, n)})
		jetstreamtest.Must(t, err)
	}
	jetstreamtest.Consume(t, c, 2)
	start(1, "b", server.Cluster{Routes: routes[:1], Join: true})
	third, _ := start(2, "c", server.Cluster{Routes: routes[:2], Join: true})
	jetstreamtest.Must(t, third.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	jetstreamtest.Retry(t, "grow", func(ctx context.Context) error { return c.EnsureAtLeast(ctx, 3) })
	threeCopies(t, third)
	stop()
	if got, want := jetstreamtest.Consume(t, third, 2), []string{"2", "3"}; !slices.Equal(got, want) {
		t.Errorf("the consumer goes on with %q, want %q", got, want)
	}
}

// TestInterruptedFoundingIsRepeated: the first server ended while its companion was still a member.
func TestInterruptedFoundingIsRepeated(t *testing.T) {
	t.Parallel()
	routes := jetstreamtest.FreeAddresses(t, 2)
	dir := t.TempDir()
	member := filepath.Join(dir, "companion")
	start := func(name, dir string, own, other int) (*server.Server, func()) {
		s, _, stop := open(t, server.Options{
			Name: name, StoreDir: dir, Listen: "127.0.0.1:0", Cluster: server.Cluster{Listen: routes[own], Routes: []string{routes[other]}},
		})
		return s, stop
	}
	a, stop := start("a", dir, 0, 1)
	b, stopCompanion := start("a-companion", member, 1, 0)
	jetstreamtest.Await(t, "one of them leads both", func() bool { return len(a.Peers()) == 2 || len(b.Peers()) == 2 })
	stopCompanion()
	stop()
	_, c, _ := open(t, server.Options{Name: "a", StoreDir: dir, Listen: "127.0.0.1:0", Cluster: server.Cluster{Listen: routes[0], First: true}})
	if _, err := os.Stat(member); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the companion's store is still there: %v", err)
	}
	jetstreamtest.Must(t, c.EnsureAtLeast(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
}

func threeCopies(t *testing.T, c *jetstream.Conn) {
	t.Helper()
	jetstreamtest.Await(t, "everything is there three times", func() bool {
		n, err := c.Copies(jetstreamtest.Within(t, jetstreamtest.Patience))
		return err == nil && n == 3
	})
}

func wantDocument(t *testing.T, c *jetstream.Conn, want string, rev uint64) {
	t.Helper()
	jetstreamtest.Retry(t, "load", func(ctx context.Context) error {
		value, at, err := c.Ports().Buckets.Bucket(events.BucketJobs).Load(ctx, "job-a")
		if err == nil && (string(value) != want || at != rev) {
			t.Errorf("the document is %q at %d, want %q at %d", value, at, want, rev)
		}
		return err
	})
}
