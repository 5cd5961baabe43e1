//go:build cgo

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/tcp"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

// training is the object behind a rg_elastic. elastic.Run has a goroutine of its own; its training
// function hands each session to the C thread that asks for the next one, and waits until that
// thread leaves it:
//
//	rg_elastic_next ◄── session ─── train, called by elastic.Run
//	rg_elastic_leave ── outcome ──►
//
// Between the two the session belongs to the host, and elastic.Run waits. A host that prepares
// first is handed sessions in the same way to register its state in. Their communicator lives on:
// into the training of the same generation, and after a complete training until close.
type training struct {
	options  elastic.Options
	sampler  *samples.Sampler
	state    *elastic.State
	prologue elastic.Prologue

	sessions  chan *elastic.Session
	outcomes  chan error
	ended     chan struct{} // closed when Run has returned
	err       error         // of Run; after ended
	stop      context.CancelCauseFunc
	recording bool
	stopping  atomic.Bool   // this process was asked to end
	complete  chan struct{} // closed when the training is complete
	closing   chan struct{} // closed by close

	mu      sync.Mutex // of the host's calls, which come one at a time anyway
	objects map[string]*[]byte
	started bool
	session *elastic.Session // that the host is in
	comm    *communicator    // of it, or of the last one if that lives on
	handle  uint64           // of comm
}

var (
	errNotIn    = invalidf("the host is in no session: it comes from rg_elastic_next")
	errStarted  = invalidf("the training has begun: the state is registered before")
	errNoEntry  = fmt.Errorf("%w: what the ranks did before their state was registered ends here", errEnd)
	errNoBallot = fmt.Errorf("%w: there is nothing to agree on before the next commit", errEnd)
	errClosing  = errors.New("the host closes its training")
)

func newTraining(options string) (*training, error) {
	o := struct {
		Samples uint64 `json:"samples"`
		Seed    uint64 `json:"seed"`
		Log     bool   `json:"log"`
		Join    bool   `json:"join"` // first, and register the state later
	}{}
	if err := decode(options, &o); err != nil {
		return nil, err
	}
	env, err := elastic.FromEnv()
	if err != nil {
		return nil, err
	}
	if !o.Log {
		env.Log = slog.New(slog.DiscardHandler)
	}
	sampler := samples.NewSampler(o.Samples, o.Seed)
	t := &training{
		options: env, sampler: sampler, state: elastic.NewState(sampler), objects: map[string]*[]byte{},
		sessions: make(chan *elastic.Session), outcomes: make(chan error), ended: make(chan struct{}),
		complete: make(chan struct{}), closing: make(chan struct{}),
	}
	t.options.Finish = t.finish
	if o.Join {
		t.options.Prepare, t.options.Prologue = t.train, &t.prologue
	}
	return t, nil
}

// registering reports whether the host may register state now.
func (t *training) registering() bool {
	return !t.started || t.session != nil && t.session.Stage != elastic.Training && t.session.Stage != elastic.Arranging
}

// data makes the state one over a data set.
func (t *training) data(size, seed uint64, recording bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.registering() {
		return errStarted
	}
	t.sampler = samples.NewSampler(size, seed)
	t.state.SetSampler(t.sampler)
	if t.recording = recording; recording {
		t.state.Recording()
	}
	return nil
}

// tensor makes memory of the host part of the state.
func (t *training) tensor(name string, memory []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.registering() {
		return errStarted
	}
	elastic.Tensor(t.state, name, memory)
	return nil
}

// live marks memory of the state as such that only a step changes; away: of parts, in memory of
// their own.
func (t *training) live(name string, away bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.session; s != nil && s.Stage == elastic.Arranging {
		if err := s.Live(name, away); err != nil {
			return invalidf("%v", err)
		}
		return nil
	}
	if away {
		return invalidf("%s: only parts of a sharded state can be away, in a session of the stage RG_ARRANGING", name)
	}
	if !t.registering() {
		return errStarted
	}
	t.state.Live(name)
	return nil
}

// sharded makes the state one of which each rank has parts.
func (t *training) sharded(copies, parity int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.registering() {
		return errStarted
	}
	switch {
	case copies < 0 || parity < 0:
		return invalidf("%d copies, parity of %d", copies, parity)
	case parity == 1:
		return invalidf("a parity of 1 is a copy: ask for 1 copy instead")
	case copies > 0 && parity > 0:
		return invalidf("%d copies and a parity of %d: choose one of them", copies, parity)
	}
	t.state.SetSharding(elastic.Sharding{Arrange: t.train, Copies: copies, Parity: parity})
	return nil
}

// shard registers a part in the host's session.
func (t *training) shard(p elastic.Shard) error {
	t.mu.Lock()
	s := t.session
	t.mu.Unlock()
	if s == nil || s.Stage != elastic.Arranging {
		return invalidf("shards are registered in a session of the stage RG_ARRANGING")
	}
	if err := s.Shard(p); err != nil {
		return invalidf("%v", err)
	}
	return nil
}

// set makes bytes part of the state, or changes them.
func (t *training) set(name string, b []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, there := t.objects[name]
	switch {
	case there:
		*at = slices.Clone(b)
	case !t.registering():
		return errStarted
	default:
		at = new([]byte)
		*at = slices.Clone(b)
		t.objects[name] = at
		t.state.Object(name, at)
	}
	return nil
}

func (t *training) get(name string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, there := t.objects[name]
	if !there {
		return nil, invalidf("no object is called %q", name)
	}
	return *at, nil
}

// start begins to join.
func (t *training) start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started {
		return errStarted
	}
	if t.options.Socket != "" {
		transport, err := listen(tcp.Options{Host: t.options.Host, PortMin: t.options.PortMin, PortMax: t.options.PortMax})
		if err != nil {
			return err
		}
		t.options.Transport = transport
	}
	t.started = true
	ctx, stop := context.WithCancelCause(context.Background())
	t.stop = stop
	go func() {
		defer close(t.ended)
		t.err = elastic.Run(ctx, t.options, t.state, t.train)
	}()
	return nil
}

// finish keeps the last communicator alive until the host closes its training.
func (t *training) finish(ctx context.Context, _ *elastic.Session) {
	close(t.complete)
	select {
	case <-t.closing:
	case <-ctx.Done():
	}
}

// train is the training function of elastic.Run, and its prepare function.
func (t *training) train(ctx context.Context, s *elastic.Session) error {
	select {
	case t.sessions <- s:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return <-t.outcomes
}

// next waits for a session, or for the end.
func (t *training) next(within time.Duration) (*elastic.Session, uint64, error) {
	t.mu.Lock()
	started, in := t.started, t.session != nil
	t.mu.Unlock()
	switch {
	case !started:
		return nil, 0, invalidf("the training has not been started")
	case in:
		return nil, 0, invalidf("the host has not left the session before")
	}
	select {
	case s := <-t.sessions:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.session = s
		if t.comm == nil || t.comm.Communicator != s.Comm() {
			t.drop()
			if s.Comm() != nil {
				t.comm = newCommunicator(s.Comm(), t.options.Job)
				t.comm.borrowed = true
				t.handle = addHandle(t.comm)
			}
		}
		return s, t.handle, nil
	case <-t.complete:
		return nil, 0, errEnd
	case <-t.ended:
		if t.err != nil {
			return nil, 0, t.err
		}
		return nil, 0, errEnd
	case <-expiry(within):
		return nil, 0, errTimeout
	}
}

// leave ends the host's part in the session.
func (t *training) leave(how status, why string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session == nil {
		return errNotIn
	}
	outcome := t.outcome(how, why)
	switch {
	case how == statusOK && t.comm != nil: // it lives on; what was started ends first
		_ = t.comm.do(t.comm.ops, nil, func() error { return nil })
	case how != statusOK && how != statusPlanned && how != statusStopped && t.comm != nil:
		// Fail what was started, and tell the others who is at fault.
		t.comm.Abort(&collective.PeerLostError{Rank: t.session.Rank, Generation: t.session.Generation, Cause: outcome})
	}
	if how != statusOK {
		t.drop()
	}
	t.session = nil
	t.outcomes <- outcome
	return nil
}

// drop closes the communicator that the host had last. The caller holds mu.
func (t *training) drop() {
	if t.comm != nil {
		take[*communicator](t.handle)
		t.comm.drain()
		t.comm, t.handle = nil, 0
	}
}

// outcome is the result of the training function.
func (t *training) outcome(how status, why string) error {
	switch how {
	case statusOK:
		return nil
	case statusPlanned:
		return elastic.ErrPlannedChange
	case statusStopped:
		return elastic.ErrStopped
	case statusPeerLost, statusAborted, statusRefused, statusClosed:
		if t.comm == nil {
			break
		}
		// where nothing has failed yet, the host has its own reason to call the generation lost
		t.comm.abort(-1, why)
		return t.comm.Failed()
	}
	return fmt.Errorf("the training function failed: %s", why)
}

// in calls do with the host's session.
func (t *training) in(do func(*elastic.Session) error) error {
	t.mu.Lock()
	s, comm := t.session, t.comm
	t.mu.Unlock()
	if s == nil || s.Stage != elastic.Training {
		return errNotIn
	}
	// Like operations, it runs after what was started before.
	return comm.do(comm.ops, nil, func() error { return do(s) })
}

// brought says that parts that are away were brought, or never will be. It waits for no operation,
// nor for a session: what it ends may be what those wait for.
func (t *training) brought(ok bool) error {
	t.state.Brought(ok)
	return nil
}

// ledger is the account of samples, as JSON.
func (t *training) ledger() ([]byte, error) {
	type epoch struct {
		Epoch uint64 `json:"epoch"`
		Count uint64 `json:"count"`
		Sum   string `json:"sum"`
		Done  bool   `json:"done"`
	}
	l := t.state.Ledger()
	v := struct {
		Samples uint64  `json:"samples"`
		Epochs  []epoch `json:"epochs"`
		Error   string  `json:"error"`
	}{Samples: l.Samples, Epochs: []epoch{}}
	for _, e := range l.Epochs {
		v.Epochs = append(v.Epochs, epoch{e.Epoch, e.Count, strconv.FormatUint(e.Sum, 10), e.Done})
	}
	if err := samples.CheckLedger(l); err != nil {
		v.Error = err.Error()
	}
	return json.Marshal(v)
}

func (t *training) close() {
	t.mu.Lock()
	started, in := t.started, t.session != nil
	t.mu.Unlock()
	if !started {
		return
	}
	select {
	case <-t.complete:
		// Derived communicators close before the one that they come from: a peer in its last
		// operation would otherwise take the end of the one for a loss in the other.
		t.mu.Lock()
		t.drop()
		t.mu.Unlock()
	default:
	}
	close(t.closing)
	if in {
		t.stop(errClosing)
		_ = t.leave(statusFailed, errClosing.Error()) // fails only without a session
	}
	select {
	case <-t.complete: // the rest is said in order
	default:
		t.stop(errClosing)
	}
	<-t.ended
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop()
}

// order fills indices with the samples of an epoch from position on.
func order(size, seed, epoch, position uint64, indices []int64) error {
	if n := uint64(len(indices)); position > size || n > size-position {
		return invalidf("places %d to %d of %d samples", position, position+n, size)
	}
	const piece = 1 << 16 // at a time, so that the copy stays small
	s := samples.NewSampler(size, seed)
	for len(indices) > 0 {
		s.Seek(samples.Cursor{Epoch: epoch, Position: position})
		for i, index := range s.Next(min(piece, len(indices)), 0, 1).Indices {
			indices[i] = int64(index)
		}
		n := min(piece, len(indices))
		indices, position = indices[n:], position+uint64(n)
	}
	return nil
}
