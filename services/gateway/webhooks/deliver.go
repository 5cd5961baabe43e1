package webhooks

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// saveEvery is how often positions are stored. What was delivered since then is delivered again
// after a crash: the id says so.
const saveEvery = time.Second

var (
	errFound   = errors.New("it was found")
	errRemoved = errors.New("the webhook was removed")
)

// Run delivers until ctx ends.
func (h *Hooks) Run(ctx context.Context) error {
	if h.File == "" {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	defer h.client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return wait.Every(ctx, saveEvery, func(time.Time) error {
			if err := h.flush(); err != nil {
				h.Logger.Warn("positions of webhooks are not stored", "reason", err)
			}
			return nil
		})
	})
	g.Go(func() error { return h.supervise(ctx, g) })
	err := g.Wait()
	if failed := h.flush(); failed != nil {
		h.Logger.Warn("positions of webhooks are not stored", "reason", failed)
	}
	return err
}

// supervise runs one delivery for each hook, also for those that come.
func (h *Hooks) supervise(ctx context.Context, g *errgroup.Group) error {
	running := map[string]context.CancelFunc{}
	for {
		h.mu.Lock()
		here := map[string]bool{}
		for _, s := range h.all {
			here[s.ID] = true
			if running[s.ID] == nil {
				var one context.Context
				one, running[s.ID] = context.WithCancel(ctx)
				g.Go(func() error { h.deliver(one, s); return nil })
			}
		}
		for id, stop := range running {
			if !here[id] {
				stop()
				delete(running, id)
			}
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			for _, stop := range running {
				stop()
			}
			return context.Cause(ctx)
		}
	}
}

// flush stores what has changed.
func (h *Hooks) flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dirty {
		return nil
	}
	if err := save(h.File, h.all); err != nil {
		return err
	}
	h.dirty = false
	return nil
}

// deliver sends a hook its facts until ctx ends or the hook is removed.
func (h *Hooks) deliver(ctx context.Context, s *stored) {
	if h.Feed.Await(ctx) != nil {
		return
	}
	h.mu.Lock()
	s.Position = min(s.Position, h.Feed.Facts.Last()) // the stream may be a new one
	at := s.Position
	h.mu.Unlock()
	down := false // the last fact was set aside
	one := func(i feed.Item) error {
		h.mu.Lock()
		removed := s.removed
		h.mu.Unlock()
		if removed {
			return errRemoved
		}
		at = i.Sequence
		if i.Kind == "fact" && s.wants(i.Event.Body.Type(), i.Job) {
			down = !h.attempts(ctx, s, i, down)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		s.Position, h.dirty = at, true
		return nil
	}
	for ctx.Err() == nil {
		err := h.Feed.FollowItems(ctx, at, one)
		if errors.Is(err, errRemoved) || ctx.Err() != nil {
			return
		}
		h.Logger.Warn("facts for a webhook cannot be read", "reason", err)
		wait.Sleep(ctx, saveEvery)
	}
}

// attempts delivers a fact, or sets it aside after h.Attempts attempts and returns false. If the
// fact before was set aside it makes one attempt only, so that a dead address does not hold the
// others up. When ctx ends it returns true, and the fact will be sent again.
func (h *Hooks) attempts(ctx context.Context, s *stored, i feed.Item, down bool) bool {
	back := h.Retry
	body := s.Form.body(i)
	most := h.Attempts
	if down {
		most = 1
	}
	for n := 1; ; n++ {
		h.mu.Lock()
		retiredSince := s.Target.Gone
		h.mu.Unlock()
		err := retired(retiredSince)
		if retiredSince.IsZero() {
			err = h.attempt(ctx, s, i.Event.ID, body, -1, false)
		}
		if ctx.Err() != nil {
			return true // it will be sent again
		}
		h.mu.Lock()
		s.LastAt, h.dirty = h.Now().UTC(), true
		if err == nil {
			s.Delivered++
			s.LastError = ""
			h.mu.Unlock()
			return true
		}
		if retiredSince.IsZero() {
			s.Failed++
		}
		s.LastError = limits.Shorten(err.Error(), limits.Text.Max)
		if n >= most || !s.Target.Gone.IsZero() {
			s.Parked = append(s.Parked, Parked{Sequence: i.Sequence, Event: i.Event.ID, Error: s.LastError, At: s.LastAt})
			if over := len(s.Parked) - maxParked; over > 0 {
				s.Parked, s.Forgotten = s.Parked[over:], s.Forgotten+uint64(over)
			}
			h.mu.Unlock()
			h.Logger.WarnContext(tracing.NewContext(ctx, i.Event.Trace), "a fact was set aside: its webhook does not take it", "url", s.shown(), "seq", i.Sequence, "code", string(errcode.Unavailable), "reason", err)
			return false
		}
		h.mu.Unlock()
		pause := back.Next()
		if !wait.Sleep(ctx, pause/2+rand.N(pause/2+1)) { // not all gateways and hooks at once
			return true
		}
	}
}
