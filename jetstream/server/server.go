// Package server runs a NATS server with JetStream inside this process, alone or in a cluster: its
// limits, who may connect to it, and how a cluster starts with one server.
package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
)

// Options configure a NATS server inside this process.
type Options struct {
	Name       string        // unique within a cluster; empty = "regroup"
	StoreDir   string        // directory of the streams; required
	Listen     string        // host:port for clients, port 0 = any free one; empty = no socket, in-process connections only
	Advertise  string        // host:port announced to clients instead of Listen
	ConfigFile string        // a nats-server configuration (accounts, TLS, permissions); fields given here take precedence
	Auth       string        // directory of package identity: only its users may connect, over TLS if it has certificates
	LockOut    time.Duration // how long an identity is kept out that has published more than its share; 0 = access.LockedOutFor
	Secret     string        // only who knows it may connect (ConnectOptions.Secret); empty = anybody, unless Auth or ConfigFile say otherwise

	Cluster Cluster
	// User and password of the system account; the same on all servers. Empty = generated: only
	// this process has access.
	System System

	MaxStore int64        // bytes for streams kept in StoreDir; 0 = 4 GiB. The topology reserves about 2.6 GiB of it
	Logger   *slog.Logger // nil = silent
	// Started by a user's command, not by an operator: its warnings are logged as Info.
	Embedded bool
}

// Cluster joins servers to one JetStream cluster. The zero value is a single server.
type Cluster struct {
	Name      string   // the same on every server
	Listen    string   // host:port for the other servers, port 0 = any free one
	Advertise string   // host:port announced to the others instead of Listen
	Routes    []string // host:port or URL of the other servers' Listen; may include its own
	Password  string   // of the routes, the same on every server; empty = any server may join, unless Auth or ConfigFile say otherwise
	First     bool     // starts the cluster alone; data of a single server in StoreDir are kept. Others join by Routes
	Join      bool     // the cluster exists: a server that joins it by Routes never starts another
}

// Defaults of the server's limits, in bytes.
const (
	defaultMaxMemory = 64 << 20
	defaultMaxStore  = 4 << 30
)

// startLimit is how long Start waits until clients can connect.
const startLimit = 10 * time.Second

// startPoll is how often it checks meanwhile whether another process has the port.
const startPoll = 100 * time.Millisecond

// A silent client is pinged each second: a frozen one is dropped at the third ping.
const (
	serverPing  = time.Second
	serverPings = 2
)

// Server is a NATS server inside this process.
type Server struct {
	ns     *server.Server
	config server.JetStreamConfig // used to restart streams
	full   bool                   // the disk was full
	system System
	inside User   // for connections inside this process
	closed bool   // inside is not enough: they need credentials of their own
	store  string // account that has the streams

	stopCompanion func() // nil = there is none
	stopFollowing func() // the directory of identities; nil = there is none
}

// Start starts a server and returns when clients can connect. In a cluster JetStream is
// usable only after the election of a leader: Conn.Ensure and Conn.Verify wait for it.
func Start(o Options) (*Server, error) {
	opts, err := o.build()
	if err != nil {
		return nil, err
	}
	s := &Server{store: server.DEFAULT_GLOBAL_ACCOUNT}
	if err := s.admit(o, opts); err != nil {
		return nil, err
	}
	if o.Cluster.Join {
		if err := waitToBeAdded(opts); err != nil {
			return nil, err
		}
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "NATS server: %w", err)
	}
	inUse := make(chan struct{}, 1)
	if o.Logger != nil {
		ns.SetLoggerV2(serverLog{o.Logger, s.system.Password != "", o.Auth != "", o.Embedded, inUse}, false, false, false)
	}
	ns.Start()
	s.ns, s.config = ns, server.JetStreamConfig{MaxMemory: opts.JetStreamMaxMemory, MaxStore: opts.JetStreamMaxStore, StoreDir: opts.StoreDir}
	s.follow(opts, o.Logger)
	if o.Cluster.First {
		if err := s.accompany(opts); err != nil {
			s.Shutdown()
			return nil, err
		}
	}
	ready, waited := false, false
	for end := time.Now().Add(startLimit); !ready && !waited; waited = time.Now().After(end) {
		ready = ns.ReadyForConnections(startPoll)
		select {
		case <-inUse:
			s.Shutdown()
			return nil, errcode.Errorf(errcode.Conflict, "NATS server: %s is in use", o.Listen)
		default:
		}
	}
	if !ready {
		s.Shutdown()
		return nil, errcode.Errorf(errcode.Unavailable,
			"NATS server did not start on %q with its store in %s within %v: is the port taken or the disk read-only?", o.Listen, o.StoreDir, startLimit)
	}
	return s, nil
}

func (o Options) build() (*server.Options, error) {
	if o.StoreDir == "" {
		return nil, errcode.Errorf(errcode.Invalid, "NATS server: StoreDir is empty: streams need a directory")
	}
	opts := &server.Options{}
	if o.ConfigFile != "" {
		var err error
		if opts, err = server.ProcessConfigFile(o.ConfigFile); err != nil {
			return nil, errcode.Errorf(errcode.Invalid, "NATS server: %s: %w", o.ConfigFile, err)
		}
	}
	opts.ServerName = cmp.Or(o.Name, opts.ServerName, "regroup")
	opts.JetStream, opts.StoreDir = true, o.StoreDir
	opts.JetStreamMaxMemory = cmp.Or(max(opts.JetStreamMaxMemory, 0), defaultMaxMemory)
	opts.JetStreamMaxStore = cmp.Or(o.MaxStore, max(opts.JetStreamMaxStore, 0), defaultMaxStore)
	// Every watcher is a consumer; a large dashboard reaches the server's default, 1000 per stream.
	opts.JetStreamLimits.DefaultMaxConsumers = -1
	// A cut cable or a frozen client must be detected in seconds, so that no more requests are sent
	// there; the server's default is minutes.
	opts.PingInterval, opts.MaxPingsOut = serverPing, serverPings
	if opts.MaxPending == 0 { // the server's default, 64 MiB for each connection, is more than some machines have
		opts.MaxPending = access.Pending
	}
	if opts.StreamMaxBufferedSize == 0 { // 128 MiB for each stream
		opts.StreamMaxBufferedSize = access.Unstored
	}
	if opts.MaxClosedClients == 0 { // 10,000, each with its claims: refused connections alone took 80 MiB
		opts.MaxClosedClients = access.ClosedConnections
	}
	opts.DisableJetStreamBanner, opts.NoSigs, opts.NoLog = true, true, o.Logger == nil
	if o.Listen == "" {
		opts.DontListen = o.ConfigFile == "" // otherwise the file sets where to listen
	} else {
		host, port, err := splitListen("client", o.Listen)
		if err != nil {
			return nil, err
		}
		opts.Host, opts.Port, opts.ClientAdvertise = host, port, o.Advertise
	}
	if err := o.Cluster.apply(opts); err != nil {
		return nil, err
	}
	return opts, nil
}

func (c Cluster) apply(opts *server.Options) error {
	if c.Listen == "" {
		if len(c.Routes) > 0 || c.Name != "" || c.First || c.Join {
			return errcode.Errorf(errcode.Invalid, "NATS cluster %q has no listen address: give host:port", c.Name)
		}
		return nil
	}
	host, port, err := splitListen("cluster", c.Listen)
	if err != nil {
		return err
	}
	opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port, opts.Cluster.Advertise = cmp.Or(c.Name, "regroup"), host, port, c.Advertise
	if c.Password != "" && opts.Cluster.Username == "" {
		opts.Cluster.Username, opts.Cluster.Password = SecretUser, c.Password
	}
	if c.First { // nats-server needs a route, even to itself
		u, err := toItself(opts)
		if err != nil {
			return err
		}
		opts.Routes = append(opts.Routes, u)
	}
	for _, r := range c.Routes {
		if !strings.Contains(r, "://") {
			r = "nats-route://" + r
		}
		u, err := url.Parse(r)
		if err != nil {
			return errcode.Errorf(errcode.Invalid, "NATS cluster route %q: %w", r, err)
		}
		if u.User == nil && opts.Cluster.Username != "" {
			u.User = url.UserPassword(opts.Cluster.Username, opts.Cluster.Password)
		}
		opts.Routes = append(opts.Routes, u)
	}
	return nil
}

func splitListen(what, s string) (string, int, error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, errcode.Errorf(errcode.Invalid, "NATS %s address %q: %w", what, s, err)
	}
	port, err := strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, errcode.Errorf(errcode.Invalid, "NATS %s address %q: the port must be a number from 0 to 65535", what, s)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// ClientURL returns nats://host:port that clients connect to; empty for a server without a socket.
func (s *Server) ClientURL() string {
	if s.ns.Addr() == nil {
		return ""
	}
	return s.ns.ClientURL()
}

// InProcessConn implements nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return s.ns.InProcessConn() }

// Clients returns the number of clients that are connected through its socket.
func (s *Server) Clients() int {
	all, err := s.ns.Connz(&server.ConnzOptions{Limit: math.MaxInt32})
	if err != nil {
		return 0
	}
	n := 0
	for _, c := range all.Conns {
		if c.Kind == "Client" && c.IP != "" && c.IP != "pipe" {
			n++
		}
	}
	return n
}

// Current reports whether this server is part of JetStream and has caught up with its leader.
func (s *Server) Current() bool { return s.ns.JetStreamIsCurrent() }

// CaughtUp returns nil if this server has everything that was stored while it was away: another
// may be stopped then without a loss of copies. Under load a copy is behind for moments at any
// time.
func (s *Server) CaughtUp() error {
	if h := s.ns.Healthz(nil); h.Error != "" {
		return errcode.Errorf(errcode.Unavailable, "%s", h.Error)
	}
	return nil
}

// Holds reports whether this server has a current replica of a stream. A bucket's stream is
// KV_<bucket>.
func (s *Server) Holds(stream string) bool {
	return s.ns.JetStreamIsStreamCurrent(s.store, stream)
}

// Leads reports whether this server is the leader of a stream.
func (s *Server) Leads(stream string) bool {
	return s.ns.JetStreamIsStreamLeader(s.store, stream)
}

// Shutdown stops the server and waits until it has ended. Acknowledged data is kept in StoreDir.
func (s *Server) Shutdown() {
	if s.stopFollowing != nil {
		s.stopFollowing()
	}
	if s.stopCompanion != nil {
		s.stopCompanion()
	}
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// serverLog passes the server's log lines to slog. Its notices are routine: debug.
type serverLog struct {
	l    *slog.Logger
	ours bool // the users were made here

	identified bool // brokers verify each other with a directory of identities

	embedded bool            // see Options
	inUse    chan<- struct{} // capacity 1: another process listens at its address
}

func (s serverLog) Noticef(f string, v ...any) { s.l.Debug(fmt.Sprintf(f, v...)) }
func (s serverLog) Warnf(f string, v ...any) {
	if s.ours && strings.HasPrefix(f, "Plaintext passwords detected") {
		return // in memory only: hashes would cost time per connection and protect nothing
	}
	if s.identified && strings.HasPrefix(f, "TLS certificate chain and hostname of solicited routes") {
		return // the chain is verified by identity.RouteTLS
	}
	level := slog.LevelWarn
	if s.embedded {
		level = slog.LevelInfo
	}
	s.l.Log(context.Background(), level, fmt.Sprintf(f, v...))
}

func (s serverLog) Fatalf(f string, v ...any) { s.Errorf(f, v...) }
func (s serverLog) Errorf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	if strings.Contains(text, syscall.EADDRINUSE.Error()) {
		select {
		case s.inUse <- struct{}{}:
		default:
		}
		return // Start returns it
	}
	s.l.Error(text)
}
func (s serverLog) Debugf(f string, v ...any) { s.l.Debug(fmt.Sprintf(f, v...)) }
func (s serverLog) Tracef(f string, v ...any) { s.l.Debug(fmt.Sprintf(f, v...)) }

// spare is the minimum free space of a store, in bytes.
const spare = 16 << 20

// Stores reports whether this server can store anything. nats-server disables a stream permanently
// when a write fails for lack of space, and then does not answer requests for it. After a full disk
// Stores therefore restarts all streams, with their acknowledged data, as soon as there is space.
// One goroutine should call it about every second.
func (s *Server) Stores() error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.config.StoreDir, &disk); err != nil {
		return errcode.Errorf(errcode.Unavailable, "the store in %s: %w", s.config.StoreDir, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < spare {
		s.full = true
		return errcode.Errorf(errcode.Unavailable, "nothing more can be stored: the disk of %s is full, %d MiB are free and %d are needed", s.config.StoreDir, free>>20, spare>>20)
	}
	if !s.full && s.ns.JetStreamEnabled() {
		return nil
	}
	if s.ns.JetStreamEnabled() {
		if err := s.ns.ShutdownJetStream(); err != nil {
			return errcode.Errorf(errcode.Unavailable, "the store in %s: %w", s.config.StoreDir, err)
		}
	}
	config := s.config
	if err := s.ns.EnableJetStream(&config); err != nil {
		return errcode.Errorf(errcode.Unavailable, "the store in %s: %w", s.config.StoreDir, err)
	}
	s.full = false
	return nil
}
