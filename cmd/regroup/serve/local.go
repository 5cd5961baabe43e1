package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream"
)

// addressFile in the state folder tells other commands of this machine where the embedded server listens.
const addressFile = "server.url"

// Local is everything but agents in this process: the broker, its streams and the four services.
type Local struct {
	Process   *boot.Process
	URL       string // where the broker listens; empty = nowhere
	Discovery DiscoveryConfig
	server    *jetstream.Server
	lock      *os.File
	file      string
}

// ErrInUse says that another process has the state folder open.
var ErrInUse = errors.New("the state folder is in use by another regroup")

// LocalOptions are how the broker in this process is reached, and by whom.
type LocalOptions struct {
	Listen  string // host:port for clients; empty = in-process only
	Name    string // of the broker, unique in its cluster
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

// OpenLocal starts the broker on the state folder and connects to it.
func OpenLocal(ctx context.Context, c boot.Config, o LocalOptions) (*Local, error) {
	dir := filepath.Join(c.StateDir, "nats")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	d, err := LoadDiscovery()
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(c.StateDir, "lock"))
	if err != nil {
		return nil, err
	}
	l := &Local{lock: lock, Discovery: d}
	log, err := c.Logger(os.Stderr)
	if err != nil {
		l.Close()
		return nil, err
	}
	broker := o.broker(dir, log)
	broker.System = c.System.Server()
	if l.server, err = jetstream.StartServer(broker); err != nil {
		l.Close()
		return nil, err
	}
	if l.Process, err = boot.Open(ctx, c, "local", l.server); err != nil {
		l.Close()
		return nil, err
	}
	if err := l.Process.Conn.EnsureAtLeast(ctx, 1); err != nil {
		l.Close()
		return nil, err
	}
	if o.Listen != "" {
		l.URL = l.server.ClientURL()
		l.file = filepath.Join(c.StateDir, addressFile)
		if err := os.WriteFile(l.file, []byte(l.URL+"\n"), 0o600); err != nil {
			l.Close()
			return nil, fmt.Errorf("state folder: %w", err)
		}
	}
	return l, nil
}

// Close ends the connection and the broker.
func (l *Local) Close() {
	if l.file != "" {
		_ = os.Remove(l.file)
	}
	if l.Process != nil {
		l.Process.Close()
	}
	if l.server != nil {
		l.server.Shutdown()
	}
	_ = l.lock.Close() // releases the lock
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s", ErrInUse, filepath.Dir(path))
	}
	return f, nil
}

// Attach gives a reading or asking command its ports: the configured server; else the one that runs on this machine's
// state folder; else, for reading only, the data that an earlier run has left there.
func Attach(ctx context.Context, c boot.Config) (events.Ports, func(), error) {
	if c.Server == "" {
		if b, err := os.ReadFile(filepath.Join(c.StateDir, addressFile)); err == nil {
			c.Server = strings.TrimSpace(string(b))
		}
	}
	if c.Server != "" {
		p, err := boot.Open(ctx, c, "cli", nil)
		if err != nil {
			return events.Ports{}, nil, err
		}
		return p.Ports, p.Close, nil
	}
	if _, err := os.Stat(filepath.Join(c.StateDir, "nats")); err != nil {
		return events.Ports{}, nil, events.Errorf(events.Unavailable, "no server: none is configured (--server, REGROUP_SERVER) and none runs here; start one with: regroup up")
	}
	l, err := OpenLocal(ctx, c, LocalOptions{})
	if err != nil {
		return events.Ports{}, nil, err
	}
	return l.Process.Ports, l.Close, nil
}
