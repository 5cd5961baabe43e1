// Package jetstreamtest runs real NATS servers for each test: one, or a cluster of three.
package jetstreamtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/internal/freeport"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/server"
)

// Patience is how long a condition may take: a cluster that has lost its leader needs 4 to 8 s to
// elect another, on a busy machine longer.
const Patience = 60 * time.Second

// Servers are running servers with the topology, and a connection to them.
type Servers struct {
	Conn    *jetstream.Conn // reconnects to another server when its own is stopped
	Ports   broker.Ports    // of Conn
	Options []server.Options

	servers []*server.Server // nil = stopped
}

// system is the same on all servers.
var system = server.System{User: "system", Password: "of-these-tests"}

// One starts a single server that listens on loopback.
func One(t testing.TB) *Servers {
	t.Helper()
	return start(t, []server.Options{{Name: "one", StoreDir: t.TempDir(), Listen: FreeAddresses(t, 1)[0], System: system}}, 1)
}

// Three starts a cluster of three servers; streams and buckets have three replicas.
func Three(t testing.TB) *Servers {
	t.Helper()
	const size = 3
	// A route must be known before the server that listens there starts. A server that is started
	// again keeps its address, which no connection may have got meanwhile.
	addresses := FreeAddresses(t, 2*size)
	routes := addresses[size:]
	options := make([]server.Options, size)
	for i := range options {
		options[i] = server.Options{
			Name: fmt.Sprint("node-", i), StoreDir: t.TempDir(), Listen: addresses[i],
			System:  system,
			Cluster: server.Cluster{Name: "test", Listen: routes[i], Routes: routes},
		}
	}
	return start(t, options, size)
}

func start(t testing.TB, options []server.Options, replicas int) *Servers {
	t.Helper()
	s := &Servers{Options: options, servers: make([]*server.Server, len(options))}
	t.Cleanup(func() {
		for i := range s.servers {
			s.Stop(i)
		}
	})
	for i := range options {
		s.Start(t, i)
	}
	if replicas > 1 {
		eventstest.Eventually(t, Patience, "every server has joined the cluster", func() bool {
			return !slices.ContainsFunc(s.servers, func(server *server.Server) bool { return !server.Current() })
		})
	}
	s.Conn = s.Connect(t, nil)
	s.Ports = s.Conn.Ports()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := s.Conn.Ensure(ctx, replicas); err != nil {
		t.Fatal(err)
	}
	return s
}

// URL returns the addresses of all servers, running or not.
func (s *Servers) URL() string {
	var all []string
	for _, o := range s.Options {
		all = append(all, "nats://"+o.Listen)
	}
	return strings.Join(all, ",")
}

// Connect makes another connection, which is closed at the end of the test.
func (s *Servers) Connect(t testing.TB, log *slog.Logger) *jetstream.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := jetstream.Connect(ctx, jetstream.ConnectOptions{URL: s.URL(), Name: t.Name(), System: system, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Stop stops a server and keeps its store. It does nothing if the server is stopped already.
func (s *Servers) Stop(i int) {
	if s.servers[i] != nil {
		s.servers[i].Shutdown()
		s.servers[i] = nil
	}
}

// Start starts a stopped server with its old store and address. In a cluster it returns when the
// server has caught up: one that is stopped while it recovers leaves goroutines of nats-server
// behind.
func (s *Servers) Start(t testing.TB, i int) {
	t.Helper()
	started, err := server.Start(s.Options[i])
	if err != nil {
		t.Fatal(err)
	}
	s.servers[i] = started
	if s.Conn == nil || len(s.Options) == 1 {
		return // first start: Ensure waits
	}
	for _, stream := range events.Streams() {
		eventstest.Eventually(t, Patience, "the server holds stream "+stream, func() bool { return started.Current() && started.Holds(stream) })
	}
}

// Server returns a running server, or nil.
func (s *Servers) Server(i int) *server.Server { return s.servers[i] }

// Leader returns the index of the server that leads a stream, once there is one.
func (s *Servers) Leader(t testing.TB, stream string) int {
	t.Helper()
	leader := -1
	eventstest.Eventually(t, Patience, "stream "+stream+" has a leader", func() bool {
		for i, server := range s.servers {
			if server != nil && server.Leads(stream) {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

// Reconnect closes the connection and returns when it is established again.
func (s *Servers) Reconnect(t testing.TB) {
	t.Helper()
	Reconnect(t, s.Conn)
}

// Reconnect closes a connection and returns when it is established again.
func Reconnect(t testing.TB, c *jetstream.Conn) {
	t.Helper()
	before := c.Connects()
	if err := c.Reconnect(); err != nil {
		t.Fatal(err)
	}
	eventstest.Eventually(t, Patience, "the connection stands again", func() bool { return c.Connected() && c.Connects() > before })
}

// FreeAddresses returns unused addresses of this machine.
func FreeAddresses(t testing.TB, n int) []string {
	t.Helper()
	out, err := freeport.Addresses(n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
