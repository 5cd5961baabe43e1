package elastic

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

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

const (
	warmDial  = 3 * time.Second        // to connect to a holder
	warmRetry = 100 * time.Millisecond // after all holders have failed; doubles up to a second
	// A pass that takes longer than this is followed by another: by then also what changes slowly has changed.
	stalePass = time.Second
	maxPasses = 4
	maxMeta   = 256 << 20
)

var (
	errOtherProgram = errors.New("this program's state is not the one of the running job")
	errUnreachable  = errors.New("the members can not reach this worker")
	errHolder       = errors.New("the holder does not keep to the protocol")
)

// warmUp fetches the state of a running generation aside, while its members train. It fetches the newest commit first;
// when the members leave their generation, the leaves of their last commit that are different.
type warmUp struct {
	job      string
	address  string // of this worker
	endpoint *collective.Endpoint
	layout   digest
	start    *snapshot // what this worker would start from: leaves of it need not be fetched
	into     *snapshot
	known    []mark // of the leaves of into; zero = unknown

	arriving atomic.Bool // the last commit is on its way
	complete bool        // into is the last commit of the generation that was followed
}

func newWarmUp(job string, e *collective.Endpoint, s *State) *warmUp {
	w := &warmUp{job: job, address: e.Addr(), endpoint: e, layout: s.layout(), start: s.held, into: s.blank(), known: make([]mark, leaves(s.size))}
	s.spare = nil // it is ours now
	w.into.forget()
	return w
}

// run follows one generation until ctx ends, or its last commit is here. ready is called when the state has been fetched
// for the first time: from then on joining costs the others little. An error says that this worker must not join: it
// would break the generation.
func (w *warmUp) run(ctx context.Context, a wire.Assignment, ready func()) error {
	holders := make([]string, 0, len(a.Peers))
	for _, p := range a.Peers {
		holders = append(holders, p)
	}
	slices.Sort(holders)
	rand.Shuffle(len(holders), func(i, j int) { holders[i], holders[j] = holders[j], holders[i] })
	var unreachable error
	for wait := warmRetry; ; wait = min(2*wait, time.Second) {
		for _, h := range holders {
			err := w.follow(ctx, h, a, ready)
			switch {
			case err == nil, ctx.Err() != nil:
				return w.over(ctx, unreachable)
			case errors.Is(err, errOtherProgram):
				return err
			case errors.Is(err, errUnreachable):
				unreachable = err
			}
		}
		if !pause(ctx, wait) {
			return w.over(ctx, unreachable)
		}
	}
}

// over is the result of a warm-up that has ended: being unreachable for all of the time is a reason not to join.
func (w *warmUp) over(ctx context.Context, unreachable error) error {
	if errors.Is(context.Cause(ctx), errWarmedLong) {
		return unreachable
	}
	return nil
}

// follow fetches from one holder, until its generation's last commit is here.
func (w *warmUp) follow(ctx context.Context, holder string, a wire.Assignment, ready func()) error {
	conn, err := w.visit(ctx, holder, a)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := w.reached(conn, holder); err != nil {
		return err
	}
	for range maxPasses {
		began := time.Now()
		if err := w.fetch(conn, false); err != nil {
			return err
		}
		if time.Since(began) < stalePass {
			break
		}
	}
	ready()
	if err := w.fetch(conn, true); err != nil {
		return err
	}
	w.complete = true
	return nil
}

func (w *warmUp) visit(ctx context.Context, holder string, a wire.Assignment) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, warmDial)
	defer cancel()
	return w.endpoint.Visit(ctx, holder, collective.Host{Job: w.job, Generation: a.Generation, Token: a.Token})
}

// reached has the holder call back: a worker that listens on a wrong address must not become a member.
func (w *warmUp) reached(conn net.Conn, holder string) error {
	_ = conn.SetDeadline(time.Now().Add(visitStall))
	if err := writeMessage(conn, askReach, []byte(w.address)); err != nil {
		return err
	}
	answer, text, err := readMessage(conn, maxText)
	switch {
	case err != nil:
		return err
	case answer == answerNo:
		return fmt.Errorf("%w: %s calls %s: %s", errUnreachable, holder, w.address, text)
	case answer != answerYes:
		return errHolder
	}
	return nil
}

// fetch takes what differs of the newest commit, or of the last one of the generation once that is there.
func (w *warmUp) fetch(conn net.Conn, last bool) error {
	ask := append([]byte{0}, w.layout[:]...)
	if last {
		ask[0] = 1
	}
	for i := range w.known {
		m := w.known[i]
		if m == (mark{}) {
			m = w.start.piece(i)
		}
		ask = append(ask, m[:]...)
	}
	_ = conn.SetDeadline(time.Now().Add(visitStall))
	if err := writeMessage(conn, askState, ask); err != nil {
		return err
	}
	if last {
		_ = conn.SetDeadline(time.Time{})
	}
	answer, body, err := readMessage(conn, maxMeta)
	switch {
	case err != nil:
		return err
	case answer == answerNo && len(body) <= maxText && string(body) == noCommit:
		return errors.New(noCommit)
	case answer == answerNo:
		return fmt.Errorf("%w: %s", errOtherProgram, body)
	case answer != answerYes || len(body) < 16:
		return errHolder
	}
	w.into.generation, w.into.step = binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])
	w.into.meta = body[16:]
	w.arriving.Store(last)
	defer w.arriving.Store(false)
	for i := range w.known {
		_ = conn.SetDeadline(time.Now().Add(visitStall))
		if err := w.take(conn, i); err != nil {
			return err
		}
	}
	return nil
}

// take receives one leaf.
func (w *warmUp) take(conn net.Conn, i int) error {
	var how [1]byte
	if _, err := io.ReadFull(conn, how[:]); err != nil {
		return err
	}
	to := leaf(w.into.data, i)
	switch how[0] {
	case leafSame:
		if w.known[i] == (mark{}) {
			copy(to, leaf(w.start.data, i))
			w.known[i] = w.start.piece(i)
		}
		return nil
	case leafSent:
	default:
		return errHolder
	}
	var m mark
	if _, err := io.ReadFull(conn, m[:]); err != nil {
		return err
	}
	w.known[i] = mark{} // it is being written over
	if _, err := io.ReadFull(conn, to); err != nil {
		return err
	}
	if got := markOf(to); got != m {
		return fmt.Errorf("%w: leaf %d does not match its hash", errHolder, i)
	}
	w.known[i] = m
	return nil
}

// settle gives the state what was fetched: a commit, if it is whole, else leaves that the sync need not send.
func (w *warmUp) settle(s *State) {
	if !w.complete {
		s.partial, s.known = w.into, w.known
		return
	}
	for i, m := range w.known {
		w.into.know(i, m)
	}
	s.adopt(w.into)
	s.named, s.warm = true, true
}
