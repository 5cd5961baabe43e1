package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/server"
)

// Local is the broker, its streams and the four services in this process.
type Local struct {
	Process   *boot.Process
	URL       string // address of the broker; empty = none
	Secret    string // for those who connect to it; empty = none is asked for
	Number    int    // number of the store in its state directory, from 1
	Opened    time.Time
	Discovery DiscoveryConfig
	server    *server.Server
	lock      *os.File
	// Ends the count of consumers; nil = there are no identities.
	stopShares func()
	dir        string
}

// OpenOwn starts a broker for one run, in the first store of the state directory that is not in
// use.
func OpenOwn(ctx context.Context, c boot.Config) (*Local, error) {
	return openOwn(ctx, c, kindRun, 1, "127.0.0.1:0")
}

// OpenTemporary is OpenOwn in a store that `regroup up` never has, so that nodes which do not exist
// are not among its own.
func OpenTemporary(ctx context.Context, c boot.Config) (*Local, error) {
	return openOwn(ctx, c, kindRun, 2, "127.0.0.1:0")
}

// OpenOwnAt is OpenOwn with a broker that listens at host:port for other nodes. They must know
// c.Secret; if it is empty anybody may connect. The error is a Conflict if another process listens
// there.
func OpenOwnAt(ctx context.Context, c boot.Config, listen string) (*Local, error) {
	return openOwn(ctx, c, kindNodes, 1, listen)
}

func openOwn(ctx context.Context, c boot.Config, kind string, first int, listen string) (*Local, error) {
	for n := first; ; n++ {
		own := c
		own.StateDir = storeDir(c.StateDir, n)
		l, err := openLocal(ctx, own, kind, n, server.Options{Listen: listen})
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

// openLocal starts the broker with these options in the state directory itself, and connects to it.
// ErrInUse if another process owns the directory.
func openLocal(ctx context.Context, c boot.Config, kind string, number int, o server.Options) (*Local, error) {
	d, err := LoadDiscovery()
	if err != nil {
		return nil, err
	}
	lock, err := lockStore(c.StateDir, kind)
	if err != nil {
		return nil, err
	}
	l := &Local{Opened: time.Now(), lock: lock, dir: c.StateDir, Number: number, Discovery: d}
	if err := l.open(ctx, c, kind, o); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Local) open(ctx context.Context, c boot.Config, kind string, o server.Options) error {
	o.StoreDir = filepath.Join(c.StateDir, "nats")
	if err := os.MkdirAll(o.StoreDir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	var err error
	if o.Logger, err = c.Logger(os.Stderr); err != nil {
		return err
	}
	o.System, o.Embedded = c.System.Server(), true
	at, err := l.secure(&c, kind, &o)
	if err != nil {
		return err
	}
	if l.server, err = server.Start(o); err != nil {
		return err
	}
	c.Server = "" // a user there is not one of this server
	if l.Process, err = boot.Open(ctx, c, boot.NameLocal, l.server); err != nil {
		return err
	}
	if err := l.Process.Conn.EnsureAtLeast(ctx, 1); err != nil {
		if o.Cluster.Join && errors.Is(err, errcode.ErrUnavailable) {
			return errcode.Errorf(errcode.Unavailable, "no cluster has taken this broker in: is one reached at %s (--join), and do most of its brokers run? %w", strings.Join(o.Cluster.Routes, ", "), err)
		}
		return err
	}
	if o.Auth != "" {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		var keeping errgroup.Group
		keeping.Go(func() error { return l.Process.Conn.KeepShares(ctx, o.Logger) })
		l.stopShares = func() { cancel(); _ = keeping.Wait() }
	}
	if o.Listen == "" {
		return nil
	}
	l.URL = l.server.ClientURL()
	at.URL = l.URL
	return at.write(c.StateDir)
}

// Others returns how many connections from outside of this process the broker has.
func (l *Local) Others() int { return l.server.Clients() }

// Close ends the connection and the broker.
func (l *Local) Close() {
	_ = os.Remove(filepath.Join(l.dir, ownerFile)) // it is meaningless without the lock
	if l.stopShares != nil {
		l.stopShares()
	}
	if l.Process != nil {
		l.Process.Close()
	}
	if l.server != nil {
		l.server.Shutdown()
	}
	_ = l.lock.Close() // releases the lock
}

var errNoServer = errcode.Errorf(errcode.Unavailable, "no server: none is configured (--server, REGROUP_SERVER) and none runs here; start one with: regroup up")

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
			i.local.Process.Logger.Warn("a service has ended", "code", string(errcode.Of(err)), "reason", err.Error())
		}
	}
	i.local.Close()
}
