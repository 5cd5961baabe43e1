package webhooks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// Options of Hooks. Feed, Logger and Now must be set.
type Options struct {
	File         string // where hooks are kept; empty = there are none, and none can be made
	AllowPrivate bool   // they may reach addresses that are not of the public network
	Origin       string // DNS name of this sender for targets; empty = regroup
	Feed         *feed.Feed
	Logger       *slog.Logger
	Now          func() time.Time

	// Retry has the first and the longest pause between attempts, each twice as long as the one
	// before and then shortened by up to a half at random. After Attempts attempts a fact is set
	// aside. The zero values are 5 s, 1 h and 12: after 1 h 12 min to 2 h 25 min.
	Retry    wait.Backoff
	Attempts int

	// Lookup finds the addresses of a new hook's host; nil = the system's resolver.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Hooks delivers the facts of a feed.
type Hooks struct {
	Options
	client *http.Client

	mu      sync.Mutex
	all     []*stored
	dirty   bool
	changed chan struct{} // closed, and made anew, when hooks come or go
}

// Open reads the hooks of a file.
func Open(o Options) (*Hooks, error) {
	if o.Retry == (wait.Backoff{}) {
		o.Retry = wait.Backoff{First: 5 * time.Second, Max: time.Hour}
	}
	if o.Attempts == 0 {
		o.Attempts = 12
	}
	if o.Lookup == nil {
		o.Lookup = net.DefaultResolver.LookupNetIP
	}
	o.Origin = cmp.Or(o.Origin, "regroup")
	if err := checkOrigin(o.Origin); err != nil {
		return nil, err
	}
	h := &Hooks{Options: o, client: sender(o.AllowPrivate), changed: make(chan struct{})}
	if o.File == "" {
		return h, nil
	}
	var err error
	h.all, err = load(o.File)
	for _, s := range h.all {
		u, malformed := url.Parse(s.URL)
		if malformed != nil || o.AllowPrivate {
			continue
		}
		if err := literal(u.Hostname()); err != nil { // it was allowed before
			s.LastError = err.Error()
		}
	}
	return h, err
}

// All returns the hooks, the oldest first.
func (h *Hooks) All() []Hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]Hook, len(h.all))
	for i, s := range h.all {
		all[i] = copyOf(s)
	}
	return all
}

func copyOf(s *stored) Hook {
	x := s.Hook
	x.URL = s.shown()
	x.Types, x.Parked = append([]string{}, x.Types...), append([]Parked{}, x.Parked...)
	return x
}

// Add makes a hook, which gets the facts from now on. Invalid if nothing may be sent to any address
// of its host; Unavailable if its target must agree, and does not.
func (h *Hooks) Add(ctx context.Context, n New) (Created, error) {
	key, err := n.check()
	if err != nil {
		return Created{}, err
	}
	if h.File == "" {
		return Created{}, errcode.Errorf(errcode.Unavailable, "this gateway keeps no webhooks")
	}
	if err := h.reachable(ctx, n.host); err != nil {
		return Created{}, errcode.Refuse([]spec.FieldError{{Path: "url", Message: err.Error()}})
	}
	if err := h.Feed.Ready(); err != nil { // what is the newest fact is not known
		return Created{}, err
	}
	s := &stored{Key: key, Token: n.Token, Hook: Hook{
		ID: ulid.Make().String(), URL: n.URL, Types: n.Types, Job: n.Job, Created: h.Now().UTC(), Form: n.Form, Handshake: n.Handshake, Rate: n.Rate, Parked: []Parked{},
	}}
	if s.Handshake == HandshakeRequired {
		if err := h.agree(ctx, s, false); err != nil {
			return Created{}, unavailable(s.shown(), err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) >= maxHooks {
		return Created{}, errcode.Errorf(errcode.Exhausted, "there are %d webhooks, which is the limit: delete one", maxHooks)
	}
	s.Position = h.Feed.Facts.Last()
	if err := save(h.File, append(slices.Clone(h.all), s)); err != nil {
		return Created{}, err
	}
	h.all = append(h.all, s)
	h.tell()
	return Created{Hook: copyOf(s), Secret: n.Secret}, nil
}

// Remove ends a hook.
func (h *Hooks) Remove(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(h.all), func(s *stored) bool { return s.ID == id })
	if len(rest) == len(h.all) {
		return unknown(id)
	}
	if err := save(h.File, rest); err != nil {
		return err
	}
	for _, s := range h.all {
		s.removed = s.removed || s.ID == id
	}
	h.all = rest
	h.tell()
	return nil
}

func unknown(id string) error {
	return errcode.Errorf(errcode.NotFound, "there is no webhook %q: see /api/v1/webhooks", limits.Shorten(id, limits.Word.Max))
}

// tell wakes supervise. The caller holds the lock.
func (h *Hooks) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// find returns a hook; the caller holds the lock.
func (h *Hooks) find(id string) (*stored, error) {
	i := slices.IndexFunc(h.all, func(s *stored) bool { return s.ID == id })
	if i < 0 {
		return nil, unknown(id)
	}
	return h.all[i], nil
}

// Test sends one event that is no fact, and returns why the target has not taken it. The target is
// asked for its permission first, whatever it has answered before.
func (h *Hooks) Test(ctx context.Context, id string) error {
	h.mu.Lock()
	s, err := h.find(id)
	h.mu.Unlock()
	if err != nil {
		return err
	}
	name := "test-" + ulid.Make().String()
	if err := h.attempt(ctx, s, name, s.Form.testBody(name, h.Now()), sendWithin, true); err != nil {
		return unavailable(s.shown(), err)
	}
	return nil
}

// targetError is a failure of a webhook's target.
type targetError struct{ error }

func (e targetError) Unwrap() error { return e.error }

// OfTarget reports whether a delivery failed because the target has refused it or did not answer,
// or because ctx has ended meanwhile.
func OfTarget(err error) bool { return errors.As(err, new(targetError)) }

func unavailable(to string, err error) error {
	if errcode.Of(err) == errcode.Exhausted {
		return err // the rate limit allows no request now
	}
	return targetError{errcode.Errorf(errcode.Unavailable, "%s: %w", to, err)}
}

// Replay makes one more attempt for each fact that was set aside, in their order, and returns how
// many are left. It ends with the first that fails again.
func (h *Hooks) Replay(ctx context.Context, id string) (left int, err error) {
	h.mu.Lock()
	s, err := h.find(id)
	var parked []Parked
	if err == nil {
		parked = slices.Clone(s.Parked)
	}
	h.mu.Unlock()
	if err != nil {
		return 0, err
	}
	for n, p := range parked {
		var fact *feed.Item
		err := h.Feed.Stored(ctx, "", p.Sequence, func(i feed.Item) error {
			fact = &i
			return errFound
		})
		if err != nil && !errors.Is(err, errFound) {
			return len(parked) - n, err
		}
		if fact == nil || fact.Sequence != p.Sequence {
			h.done(s, p, errcode.Errorf(errcode.NotFound, "fact %d is no longer kept", p.Sequence))
			continue
		}
		if err := h.attempt(ctx, s, fact.Event.ID, s.Form.body(*fact), sendWithin, n == 0); err != nil {
			return len(parked) - n, unavailable(s.shown(), err)
		}
		h.done(s, p, nil)
	}
	return 0, h.flush()
}

// done takes a fact from those that were set aside: it was delivered or, with an error, is lost.
func (h *Hooks) done(s *stored, p Parked, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Parked = slices.DeleteFunc(s.Parked, func(x Parked) bool { return x.Sequence == p.Sequence })
	if s.LastAt = h.Now().UTC(); err != nil {
		s.Forgotten++
		s.LastError = err.Error()
	} else {
		s.Delivered++
	}
	h.dirty = true
}
