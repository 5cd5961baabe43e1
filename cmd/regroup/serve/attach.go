package serve

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/server"
	"github.com/regroup-io/regroup/services/cluster"
)

const (
	// atOnce is how many stores are opened concurrently.
	atOnce = 4
	// storePause is the polling interval of a store whose owner starts or ends.
	storePause = 20 * time.Millisecond
	// localLimit bounds one attempt to connect to an owner on this machine.
	localLimit = 2 * time.Second
)

// Attach connects a command to its servers: the configured one; otherwise those that run in this
// machine's state directory and, for reading only, the stores of ended ones. c.Wait bounds it. say
// reports a wait or a skipped server; it may be called concurrently. The last result closes the
// connections.
func Attach(ctx context.Context, c boot.Config, say func(string)) ([]cluster.Server, func(), error) {
	if c.Server != "" {
		s, err := dial(ctx, c, say)
		return []cluster.Server{s}, s.Close, err
	}
	dirs := stores(c.StateDir)
	found, errs := make([]cluster.Server, len(dirs)), make([]error, len(dirs))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, dir := range dirs {
		g.Go(func() error {
			var s attached
			s, errs[i] = openStore(ctx, c, dir)
			found[i] = s.Server
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	all := slices.DeleteFunc(found, func(s cluster.Server) bool { return s.Close == nil })
	if err := errors.Join(errs...); len(all) == 0 {
		return nil, nil, cmp.Or(err, errNoServer)
	}
	for _, err := range errs {
		if err != nil {
			say("left out: " + err.Error())
		}
	}
	return all, func() {
		for _, s := range all {
			s.Close()
		}
	}, nil
}

// AttachShared connects a submitting command to its server: the configured one, or `regroup up` in
// this machine's state directory.
func AttachShared(ctx context.Context, c boot.Config, say func(string)) (cluster.Server, error) {
	if c.Server != "" {
		return dial(ctx, c, say)
	}
	s, err := openShared(ctx, c)
	return s.Server, err
}

// openShared connects to `regroup up` in this machine's state directory, or opens its store.
func openShared(ctx context.Context, c boot.Config) (attached, error) {
	s, err := openStore(ctx, c, c.StateDir)
	if err == nil && s.Close == nil {
		err = errNoServer
	}
	return s, err
}

// attached is a server of this machine, and the connection to it.
type attached struct {
	cluster.Server
	process *boot.Process
}

func dial(ctx context.Context, c boot.Config, say func(string)) (cluster.Server, error) {
	p, err := boot.Dial(ctx, admitted(c), say)
	if err != nil {
		return cluster.Server{}, err
	}
	return cluster.Server{Ports: p.Ports, Source: p.Config.CommandSource(), Close: p.Close}, nil
}

// admitted returns the configuration with what admits this user to a server of this machine, if its
// address is given as `regroup up` prints it, without anything that would admit anybody.
func admitted(c boot.Config) boot.Config {
	u, err := url.Parse(c.Server)
	if err != nil || u.User != nil || c.Auth != "" || c.Creds != "" || c.Secret != "" {
		return c
	}
	for _, dir := range stores(c.StateDir) {
		at := readOwner(dir)
		if own, err := url.Parse(at.URL); err == nil && own.Host == u.Host && owned(dir) {
			c.Server, c.Secret, c.Creds, c.TLSCA = at.URL, at.Secret, at.Creds, cmp.Or(c.TLSCA, at.TLSCA)
			return c
		}
	}
	return c
}

// upHere returns the configuration of an agent to which no server is named, with that of `regroup
// up` in this machine's state directory, and its owner; the same configuration and no owner if none
// runs.
func upHere(ctx context.Context, c boot.Config) (boot.Config, owner, error) {
	limit, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	for Shared(c) {
		if at := readOwner(c.StateDir); at.URL != "" {
			c.Server, c.Secret, c.TLSCA = at.URL, at.Secret, cmp.Or(c.TLSCA, at.TLSCA)
			if c.Auth == "" {
				c.Creds = cmp.Or(c.Creds, at.Creds)
			}
			return c, at, nil
		}
		if wait.Sleep(limit, storePause) {
			continue
		}
		if ctx.Err() != nil {
			return c, owner{}, context.Cause(ctx)
		}
		return c, owner{}, errcode.Errorf(errcode.Unavailable, "%s does not listen after %s; name another server with --server, or give more time with --timeout", readOwner(c.StateDir), c.Wait)
	}
	return c, owner{}, nil
}

// movedEvery is how often an agent that has lost the broker of `regroup up` looks where it is.
const movedEvery = time.Second

// whileHere runs an agent until the broker of `regroup up` is no longer the one that was found: the
// agent would try for ever to reach that. If nothing was found it runs the agent alone.
func whileHere(ctx context.Context, p *boot.Process, was owner, run func(context.Context) error) error {
	if was == (owner{}) {
		return run(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for wait.Sleep(ctx, movedEvery) {
			at := readOwner(p.Config.StateDir)
			if at.PID = was.PID; !p.Conn.Connected() && Shared(p.Config) && at.URL != "" && at != was {
				end(errcode.Errorf(errcode.Unavailable, "regroup up was started again and is at another address, or has another secret: start this agent again; with --listen and REGROUP_SECRET both stay"))
			}
		}
	})
	err := run(ctx)
	end(nil)
	watching.Wait()
	if cause := context.Cause(ctx); errcode.Of(cause) == errcode.Unavailable {
		return cause
	}
	return err
}

// openStore connects to the owner of a store, or opens the store of an ended one; the zero result
// if there was never a broker.
func openStore(ctx context.Context, c boot.Config, dir string) (attached, error) {
	limit, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	c.StateDir = dir
	for {
		at := readOwner(dir)
		if owned(dir) {
			switch s, err := dialOwner(limit, c, at); {
			case err == nil && s.Close != nil:
				return s, nil
			case at.stopped():
				return attached{}, errcode.Errorf(errcode.Unavailable, "%s is stopped: continue it (fg, or kill -CONT %d), or end it (kill -9 %d)", at, at.PID, at.PID)
			}
		} else {
			if _, err := os.Stat(filepath.Join(dir, "nats")); err != nil {
				return attached{}, nil // the store is empty
			}
			l, err := openLocal(limit, c, kindRead, 0, server.Options{})
			if err == nil {
				i := &idle{local: l}
				return attached{cluster.Server{Ports: l.Process.Ports, Idle: true, Serve: i.serve, Close: i.close}, l.Process}, nil
			}
			if !errors.Is(err, ErrInUse) {
				return attached{}, err
			}
		}
		if wait.Sleep(limit, storePause) {
			continue
		}
		if ctx.Err() != nil {
			return attached{}, context.Cause(ctx)
		}
		return attached{}, errcode.Errorf(errcode.Unavailable, "%s has the state folder %s open and was not reached within %s: end it (kill %d), or give more time with --timeout", at, dir, c.Wait, at.PID)
	}
}

// dialOwner connects to the broker of a store's recorded owner; the zero result if no address is
// recorded yet.
func dialOwner(ctx context.Context, c boot.Config, at owner) (attached, error) {
	if at.URL == "" {
		return attached{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, localLimit)
	defer cancel()
	c.Server, c.Wait = at.URL, localLimit
	c.Auth, c.Creds, c.TLSCA, c.TLSCert, c.TLSKey, c.Secret = "", at.Creds, at.TLSCA, "", "", at.Secret // the others are of another server
	p, err := boot.Dial(ctx, c, func(string) {})
	if err != nil {
		return attached{}, err
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	serving, ended := context.WithCancel(context.WithoutCancel(ctx))
	w := &ownerWatch{dir: c.StateDir, was: readOwner(c.StateDir), lost: make(chan struct{}, 1)}
	var running sync.WaitGroup
	running.Go(func() { _ = p.Ports.Signals.Watch(watch, w.connection) }) // it ends with watch
	running.Go(func() {
		defer ended()
		w.run(watch)
	})
	return attached{cluster.Server{Ports: p.Ports, Own: at.Kind != kindUp, Ended: serving, Close: func() {
		stop()
		running.Wait()
		p.Close()
	}}, p}, nil
}

// ownerWatch detects the end of a store's owner.
type ownerWatch struct {
	dir       string
	was       owner
	connected atomic.Bool
	lost      chan struct{}
}

func (w *ownerWatch) connection(now bool) {
	if w.connected.Store(now); now {
		return
	}
	select {
	case w.lost <- struct{}{}:
	default:
	}
}

// run returns once the connection is lost and the store has no owner, or another one.
func (w *ownerWatch) run(ctx context.Context) {
	for {
		select {
		case <-w.lost:
		case <-ctx.Done():
			return
		}
		for !w.connected.Load() && ctx.Err() == nil {
			if !owned(w.dir) || readOwner(w.dir) != w.was {
				return
			}
			wait.Sleep(ctx, storePause)
		}
	}
}
