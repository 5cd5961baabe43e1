package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream"
)

// Local is the broker, its streams and the four services in this process.
type Local struct {
	Process   *boot.Process
	URL       string // address of the broker; empty = none
	Number    int    // number of the store in its state directory, from 1
	Discovery DiscoveryConfig
	server    *jetstream.Server
	lock      *os.File
	dir       string
}

// LocalOptions configure how clients and peers connect to the broker in this process.
type LocalOptions struct {
	Listen  string // host:port for clients; empty = in-process only
	Name    string // name of the broker, unique in its cluster
	Cluster string // host:port for the brokers of other machines; empty = a broker on its own
	Join    []string
}

// broker are the options of the server.
func (o LocalOptions) broker(dir string, log *slog.Logger) jetstream.ServerOptions {
	s := jetstream.ServerOptions{Name: o.Name, StoreDir: dir, Listen: o.Listen, Logger: log, Embedded: true}
	if o.Cluster != "" {
		s.Cluster = jetstream.Cluster{Listen: o.Cluster, Routes: o.Join, First: len(o.Join) == 0}
	}
	return s
}

// OpenShared starts the broker that is shared on this machine, in the state directory itself, and
// connects to it. ErrInUse if a run or another `up` owns the directory.
func OpenShared(ctx context.Context, c boot.Config, o LocalOptions) (*Local, error) {
	return openLocal(ctx, c, kindUp, 1, o)
}

// OpenOwn starts a broker for one run, in the first store of the state directory that is not in
// use.
func OpenOwn(ctx context.Context, c boot.Config) (*Local, error) {
	for n := 1; ; n++ {
		own := c
		own.StateDir = storeDir(c.StateDir, n)
		l, err := openLocal(ctx, own, kindRun, n, LocalOptions{Listen: "127.0.0.1:0"})
		if errors.Is(err, ErrInUse) && n < maxStores {
			continue
		}
		return l, err
	}
}

// Shared reports whether `regroup up` runs or starts in the state directory.
func Shared(c boot.Config) bool {
	return owned(c.StateDir) && readOwner(c.StateDir).Kind == kindUp
}

func openLocal(ctx context.Context, c boot.Config, kind string, number int, o LocalOptions) (*Local, error) {
	d, err := LoadDiscovery()
	if err != nil {
		return nil, err
	}
	lock, err := lockStore(c.StateDir, kind)
	if err != nil {
		return nil, err
	}
	l := &Local{lock: lock, dir: c.StateDir, Number: number, Discovery: d}
	if err := l.open(ctx, c, kind, o); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Local) open(ctx context.Context, c boot.Config, kind string, o LocalOptions) error {
	dir := filepath.Join(c.StateDir, "nats")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	log, err := c.Logger(os.Stderr)
	if err != nil {
		return err
	}
	broker := o.broker(dir, log)
	broker.System = c.System.Server()
	if l.server, err = jetstream.StartServer(broker); err != nil {
		return err
	}
	if l.Process, err = boot.Open(ctx, c, "local", l.server); err != nil {
		return err
	}
	if err := l.Process.Conn.EnsureAtLeast(ctx, 1); err != nil {
		return err
	}
	if o.Listen == "" {
		return nil
	}
	l.URL = l.server.ClientURL()
	return owner{Kind: kind, PID: os.Getpid(), URL: l.URL}.write(c.StateDir)
}

// Close ends the connection and the broker.
func (l *Local) Close() {
	_ = os.Remove(filepath.Join(l.dir, ownerFile)) // it is meaningless without the lock
	if l.Process != nil {
		l.Process.Close()
	}
	if l.server != nil {
		l.server.Shutdown()
	}
	_ = l.lock.Close() // releases the lock
}

var errNoServer = events.Errorf(events.Unavailable, "no server: none is configured (--server, REGROUP_SERVER) and none runs here; start one with: regroup up")

// idle is the store of an ended broker: it is opened for reading, and its services run once they
// are needed.
type idle struct {
	local *Local

	once    sync.Once
	stop    context.CancelFunc
	running errgroup.Group
	failed  error
}

// serve runs the services until close.
func (i *idle) serve() error {
	i.once.Do(func() {
		if i.failed = i.local.Discovery.Check(context.Background()); i.failed != nil {
			return
		}
		var ctx context.Context
		ctx, i.stop = context.WithCancel(context.Background())
		i.running.Go(func() error { return i.local.Run(ctx) })
	})
	return i.failed
}

func (i *idle) close() {
	if i.stop != nil {
		i.stop()
		if err := i.running.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			i.local.Process.Logger.Warn("a service has ended", "code", string(events.CodeOf(err)), "reason", err.Error())
		}
	}
	i.local.Close()
}
