package statesync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/internal/wait"
)

const (
	dialTimeout = 3 * time.Second
	// A pass that takes longer than this is followed by another one, because the state has changed
	// meanwhile.
	stalePass = time.Second
	maxPasses = 4
)

// retryInterval is the wait between rounds in which no holder could be used.
var retryInterval = wait.Backoff{First: 100 * time.Millisecond, Max: time.Second}

var (
	// ErrOtherProgram says that the registered state differs from that of the running job.
	ErrOtherProgram = errors.New("this program's state is not the one of the running job")
	// ErrUnreachable says that the members cannot connect to this worker.
	ErrUnreachable = errors.New("the members can not reach this worker")
	// ErrTimeout is the cause with which the caller ends the context of a prefetch that takes too
	// long.
	ErrTimeout = errors.New("the state was not fetched in time")
)

// Source is a running generation whose members serve their state.
type Source struct {
	Job        string
	Generation uint64
	Token      string   // grants access to the state
	Holders    []string // addresses of members
}

func (s Source) dial(ctx context.Context, e *collective.Endpoint, holder string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return e.DialService(ctx, holder, collective.Service{Job: s.Job, Generation: s.Generation, Token: s.Token})
}

// FetchPrologue returns the encoded prologue of a holder, of at most limit bytes.
func FetchPrologue(ctx context.Context, e *collective.Endpoint, s Source, holder string, limit int) ([]byte, error) {
	conn, err := s.dial(ctx, e, holder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	if err := writeMessage(conn, requestPrologue, nil); err != nil {
		return nil, err
	}
	response, body, err := readMessage(conn, limit)
	if err == nil && response != responseYes {
		err = errProtocol
	}
	return body, err
}

// Prefetch fetches the state of a running generation while its members train. It fetches the newest
// commit first and, when the members leave their generation, the chunks of their last commit that
// have changed.
type Prefetch struct {
	replica  *Replica
	endpoint *collective.Endpoint
	layout   Digest
	initial  *Snapshot // chunks of it need not be fetched
	into     *Snapshot
	hashes   []chunkHash // of the chunks of into

	finishing atomic.Bool // the last commit is arriving
	complete  bool        // into is the last commit of its generation
}

// NewPrefetch returns a prefetch for a replica with an initial state.
func NewPrefetch(e *collective.Endpoint, r *Replica) *Prefetch {
	p := &Prefetch{
		replica: r, endpoint: e, layout: r.config.Layout(), initial: r.newest, into: r.buffer(),
		hashes: make([]chunkHash, chunkCount(r.Tensors.size)),
	}
	r.spare = nil // the prefetch owns it
	p.into.reset()
	return p
}

// Run fetches from one generation until ctx ends or the last commit of the generation is here. It
// may be called again with the next generation and keeps the chunks that it has. ready is called
// when the state has been fetched for the first time: from then on the members need not wait long
// for this worker. A non-nil error says that this worker must not join, because it would break the
// generation.
func (p *Prefetch) Run(ctx context.Context, s Source, ready func()) error {
	holders := slices.Sorted(slices.Values(s.Holders))
	rand.Shuffle(len(holders), func(i, j int) { holders[i], holders[j] = holders[j], holders[i] })
	var unreachable error
	retry := retryInterval
	for {
		for _, h := range holders {
			err := p.fetchFrom(ctx, h, s, ready)
			switch {
			case err == nil, ctx.Err() != nil:
				return result(ctx, unreachable)
			case errors.Is(err, ErrOtherProgram):
				return err
			case errors.Is(err, ErrUnreachable):
				unreachable = err
			}
		}
		if !retry.Sleep(ctx) {
			return result(ctx, unreachable)
		}
	}
}

// result is the error of a prefetch that has ended: a worker that was unreachable for all of the
// time must not join.
func result(ctx context.Context, unreachable error) error {
	if errors.Is(context.Cause(ctx), ErrTimeout) {
		return unreachable
	}
	return nil
}

// fetchFrom fetches from one holder until the last commit of its generation is here.
func (p *Prefetch) fetchFrom(ctx context.Context, holder string, s Source, ready func()) error {
	conn, err := s.dial(ctx, p.endpoint, holder)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := p.checkReachable(conn, holder); err != nil {
		return err
	}
	for range maxPasses {
		began := time.Now()
		if err := p.fetchCommit(conn, false); err != nil {
			return err
		}
		if time.Since(began) < stalePass {
			break
		}
	}
	ready()
	if err := p.fetchCommit(conn, true); err != nil {
		return err
	}
	p.complete = true
	return nil
}

// checkReachable has the holder call back: a worker that listens on a wrong address must not become
// a member.
func (p *Prefetch) checkReachable(conn net.Conn, holder string) error {
	address := p.endpoint.Addr()
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	if err := writeMessage(conn, requestReach, []byte(address)); err != nil {
		return err
	}
	response, text, err := readMessage(conn, maxText)
	switch {
	case err != nil:
		return err
	case response == responseNo:
		return fmt.Errorf("%w: %s calls %s: %s", ErrUnreachable, holder, address, text)
	case response != responseYes:
		return errProtocol
	}
	return nil
}

// fetchCommit fetches the changed chunks of the newest commit or, with final, waits for the last
// commit of the generation and fetches those.
func (p *Prefetch) fetchCommit(conn net.Conn, final bool) error {
	request := append([]byte{0}, p.layout[:]...)
	if final {
		request[0] = 1
	}
	for i, h := range p.hashes {
		if h == (chunkHash{}) {
			h = p.initial.hash(i)
		}
		request = append(request, h[:]...)
	}
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	if err := writeMessage(conn, requestState, request); err != nil {
		return err
	}
	if final {
		_ = conn.SetDeadline(time.Time{})
	}
	response, body, err := readMessage(conn, maxMeta)
	switch {
	case err != nil:
		return err
	case response == responseNo && len(body) <= maxText && string(body) == noCommit:
		return errors.New(noCommit)
	case response == responseNo:
		return fmt.Errorf("%w: %s", ErrOtherProgram, body)
	case response != responseYes || len(body) < 16:
		return errProtocol
	}
	p.into.generation, p.into.step = binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])
	p.into.meta = body[16:]
	p.finishing.Store(final)
	defer p.finishing.Store(false)
	for i := range p.hashes {
		_ = conn.SetDeadline(time.Now().Add(ioTimeout))
		if err := p.receiveChunk(conn, i); err != nil {
			return err
		}
	}
	return nil
}

func (p *Prefetch) receiveChunk(conn net.Conn, i int) error {
	var kind [1]byte
	if _, err := io.ReadFull(conn, kind[:]); err != nil {
		return err
	}
	b := chunk(p.into.data, i)
	switch kind[0] {
	case chunkSame:
		if p.hashes[i] == (chunkHash{}) {
			copy(b, chunk(p.initial.data, i))
			p.hashes[i] = p.initial.hash(i)
		}
		return nil
	case chunkSent:
	default:
		return errProtocol
	}
	var want chunkHash
	if _, err := io.ReadFull(conn, want[:]); err != nil {
		return err
	}
	p.hashes[i] = chunkHash{} // until the chunk is verified
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if hashOf(b) != want {
		return fmt.Errorf("%w: chunk %d does not match its hash", errProtocol, i)
	}
	p.hashes[i] = want
	return nil
}

// Finishing reports whether the last commit of the generation is arriving. It may be called while
// Run is running.
func (p *Prefetch) Finishing() bool { return p.finishing.Load() }

// Deliver hands the result to the replica: a commit if it is complete, else chunks that the sync
// need not send. Run must have returned.
func (p *Prefetch) Deliver() {
	if !p.complete {
		p.replica.partial = &partialSnapshot{snapshot: p.into, hashes: p.hashes}
		return
	}
	for i, h := range p.hashes {
		p.into.setHash(i, h)
	}
	p.replica.adopt(p.into)
	p.replica.hashed, p.replica.unapplied = true, true
}
