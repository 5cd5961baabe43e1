package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/refusal"
)

// state is the state of the connection. It counts connects, so that a watcher that missed a short
// disconnection still detects it.
type state struct {
	mu      sync.Mutex
	up      bool
	epoch   uint64        // connects so far
	changed chan struct{} // closed at each change
	done    chan struct{} // closed with the connection
	ended   bool
}

func newState() *state {
	return &state{changed: make(chan struct{}), done: make(chan struct{})}
}

func (s *state) set(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up == up || s.ended {
		return
	}
	s.up = up
	if up {
		s.epoch++
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *state) close() {
	s.set(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.done)
	}
}

func (s *state) closed() <-chan struct{} { return s.done }

// get returns the state and a channel that is closed when it changes.
func (s *state) get() (up bool, epoch uint64, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up, s.epoch, s.changed
}

// await returns when the connection is established or closed, or ctx ends.
func (s *state) await(ctx context.Context) error {
	for {
		up, _, changed := s.get()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case up:
			return nil
		}
		select {
		case <-changed:
		case <-s.done:
			return errClosed()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold blocks until ctx ends, and returns its cause, or until the connection is closed.
func (s *state) hold(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return errClosed()
	}
}

// pause waits for d; it returns false if the caller should stop.
func (s *state) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.done:
		return false
	case <-ctx.Done():
		return false
	}
}

func errClosed() error {
	return errcode.Errorf(errcode.Unavailable, "the connection to NATS was closed by this process")
}

// ErrRefused is in the error of a connection that the server refuses to this user.
var ErrRefused = errors.New("refuses this user")

// admitted forgets what earlier connections, or attempts to connect, were refused.
func (c *Conn) admitted() {
	c.refused.Forget()
	c.dialer.Reset()
	c.failed.Store(nil)
	c.refusals.Store(0)
	if c.creds != nil {
		c.creds.Admitted()
	}
}

// renewEvery is how often a connection looks for other credentials in its file.
const renewEvery = time.Second

// renewing connects anew when the file of credentials has others, until the connection is closed.
func (c *Conn) renewing() {
	pause := renewEvery
	for c.state.pause(context.Background(), pause) {
		pause = renewEvery
		if !c.Connected() {
			continue // every attempt to connect reads the file
		}
		text, tried := c.creds.Changed()
		if text == nil {
			continue
		}
		if tried {
			pause = refusedWait
		}
		switch err := c.admits(text); {
		case err == nil:
			c.creds.Refuse(nil)
			c.log.Info("the credentials have changed: connecting anew with the new ones", "file", c.creds.Path)
			if err := c.Reconnect(); err != nil {
				return // it is closed
			}
		case !tried && (refusal.OfUser(err) || errcode.Of(err) == errcode.Invalid):
			c.creds.Refuse(text)
			c.log.Error("the credentials have changed, and the connection keeps the old ones: the new ones are not usable", "file", c.creds.Path, "reason", err.Error())
		}
	}
}

// admits makes a connection with other credentials, and closes it. The one in use is not touched:
// if they are not admitted, it may still be.
func (c *Conn) admits(creds []byte) error {
	if c.creds.OtherUser(creds) {
		return errcode.Errorf(errcode.Invalid, "they are of another user: that needs another start")
	}
	claims, err := jwt.ParseDecoratedJWT(creds)
	if err != nil {
		return errcode.Errorf(errcode.Invalid, "%w", err)
	}
	opts := append(c.dialOptions(c.opt),
		nats.Name(c.opt.Name+" (trial)"), nats.NoReconnect(), nats.Timeout(connectTimeout),
		nats.UserJWT(func() (string, error) { return claims, nil }, func(nonce []byte) ([]byte, error) { return identity.Sign(creds, nonce) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // what matters is returned
	)
	nc, err := nats.Connect(c.opt.URL, opts...)
	if err != nil {
		return errcode.Errorf(errcode.Unavailable, "%w", err)
	}
	defer nc.Close()
	if err := nc.FlushTimeout(connectTimeout); err != nil { // a server within the process refuses late
		return errcode.Errorf(errcode.Unavailable, "%w", err)
	}
	return nil
}
