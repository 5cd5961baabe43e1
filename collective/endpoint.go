package collective

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective/shm"
)

// Endpoint is where a process receives connections, for all its generations. It
// outlives communicators, so that the address of a process never changes.
//
// A connection for a generation that is over is refused with the reason. One for a
// generation that this process has not begun yet, because the peer was told first,
// is kept until the communicator is made.
type Endpoint struct {
	transport Transport
	life      context.Context //nolint:containedctx // the endpoint's own end, not a caller's
	end       context.CancelFunc
	tasks     sync.WaitGroup
	wire      func(net.Conn) (wire, error) // newWire; tests look over its shoulder

	// Limits against peers that misbehave; see NewEndpoint for the values.
	helloAfter, parkFor time.Duration

	mu     sync.Mutex
	closed bool
	live   map[key]*Communicator
	newest map[string]uint64      // per job, of the generations that began here
	over   map[key][]byte         // verdicts of the last generations that ended here
	order  []key                  // of over, oldest first
	greets *waitingRoom[net.Conn] // connections whose hello is awaited
	parked *waitingRoom[*guest]
	host   *hosting // who answers visitors; nil = nobody
	arena  *shm.Arena
	maps   *shm.MappingCache
}

type key struct {
	job        string
	generation uint64
}

// guest is a connection whose hello was read and that has no answer yet.
type guest struct {
	conn      net.Conn
	hello     hello
	body, mac []byte
	challenge []byte
	timer     *time.Timer
}

// remembered is the number of ended generations for which a late dialer is told how
// they ended, rather than only that they did.
const remembered = 16

// NewEndpoint starts to accept connections on t, which it closes in its own Close.
//
// A handshake lasts for at most 5 s; a connection waits for a generation that has not
// begun for at most 30 s (the peer then tries again). Of each, at most 64 of one
// source and 256 in all are kept: one more closes the oldest, of the source that has
// the most, so that who connects and says nothing is in nobody's way for long.
func NewEndpoint(t Transport) *Endpoint { return newEndpoint(t, 5*time.Second) }

func newEndpoint(t Transport, helloAfter time.Duration) *Endpoint {
	life, end := context.WithCancel(context.Background())
	e := &Endpoint{
		transport: t, life: life, end: end, wire: newWire,
		helloAfter: helloAfter, parkFor: 30 * time.Second,
		live: map[key]*Communicator{}, newest: map[string]uint64{},
		over: map[key][]byte{}, greets: newWaitingRoom[net.Conn](64, 256), parked: newWaitingRoom[*guest](64, 256),
		maps: shm.NewMappingCache(),
	}
	e.tasks.Go(e.serve)
	return e
}

// Addr is what peers dial; tell them through Options.Peers.
func (e *Endpoint) Addr() string { return e.transport.Addr() }

// Close stops accepting, drops connections that wait, and returns when every
// goroutine of the endpoint has ended. Close the communicators first.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	waiting := e.parked.clear()
	e.mu.Unlock()
	e.end()
	err := e.transport.Close()
	for _, g := range waiting {
		g.timer.Stop()
		_ = g.conn.Close()
	}
	e.tasks.Wait()
	e.maps.Prune()
	if e.arena != nil {
		e.arena.Close()
	}
	return err
}

func (e *Endpoint) serve() {
	for wait := time.Millisecond; ; {
		conn, err := e.transport.Accept(e.life)
		if e.life.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			// Out of file descriptors, or the transport is gone for good: either way
			// the ring finds out by itself; here it must only not spin.
			select {
			case <-time.After(wait):
			case <-e.life.Done():
			}
			wait = min(2*wait, time.Second)
			continue
		}
		wait = time.Millisecond
		e.mu.Lock()
		oldest, over := e.greets.add(conn, source(conn))
		e.mu.Unlock()
		if over {
			_ = oldest.Close()
		}
		e.tasks.Go(func() { e.receive(conn) })
	}
}

// receive reads one hello and finds out whom it is for.
func (e *Endpoint) receive(conn net.Conn) {
	// The deadline covers silence; this covers Close.
	stop := context.AfterFunc(e.life, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(e.helloAfter))
	challenge := make([]byte, challengeLen)
	_, _ = rand.Read(challenge) // never fails: crypto/rand.Read
	var body, sum []byte
	var h hello
	_, err := conn.Write(greeting(challenge))
	if err == nil {
		body, h, sum, err = readHello(conn)
	}
	e.mu.Lock()
	there := e.greets.remove(conn)
	e.mu.Unlock()
	if err != nil || !there { // from here on nobody else closes it
		_ = conn.Close()
		return
	}
	g := &guest{conn: conn, hello: h, body: body, mac: sum, challenge: challenge}
	if h.purpose == forVisit {
		e.visited(g)
		return
	}
	c, code, detail, oldest := e.route(g)
	if oldest != nil {
		oldest.timer.Stop()
		oldest.refuse(replyBusy, []byte("too many connections wait for generations that have not begun"))
	}
	switch {
	case c != nil:
		g.present(c)
	case code != replyWelcome:
		g.refuse(code, detail)
	}
}

// route decides on a guest: the communicator that it is for, or a refusal, or
// neither if it was parked, then perhaps in the place of the oldest.
func (e *Endpoint) route(g *guest) (_ *Communicator, _ replyCode, _ []byte, oldest *guest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := key{g.hello.job, g.hello.generation}
	if c := e.live[k]; c != nil {
		return c, replyWelcome, nil, nil
	}
	if verdict, ok := e.over[k]; ok {
		return nil, replyFailed, verdict, nil
	}
	switch {
	case e.stale(k):
		return nil, replyStale, fmt.Appendf(nil, "generation %d is stale, this process is at %d", k.generation, e.newest[k.job]), nil
	case e.foreign(k.job):
		return nil, replyForeign, fmt.Appendf(nil, "job %q is not known here", k.job), nil
	case g.hello.purpose == forProbe:
		return nil, replyEarly, nil, nil
	case e.closed:
		return nil, replyBusy, []byte("this endpoint ends"), nil
	}
	oldest, _ = e.parked.add(g, source(g.conn))
	g.timer = time.AfterFunc(e.parkFor, func() {
		if e.unpark(g) {
			g.refuse(replyBusy, []byte("the generation has not begun here"))
		}
	})
	return nil, replyWelcome, nil, oldest
}

// stale tells whether a generation has been here. The caller holds mu, also in foreign.
func (e *Endpoint) stale(k key) bool {
	newest, known := e.newest[k.job]
	return known && k.generation <= newest
}

// foreign tells whether nothing of a job can be expected here. Duplicates are: see Dup.
func (e *Endpoint) foreign(job string) bool {
	_, known := e.newest[job]
	_, duplicate := e.newest[job[:max(strings.LastIndexByte(job, '/'), 0)]]
	return len(e.newest) > 0 && !known && !duplicate
}

func (e *Endpoint) unpark(g *guest) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.parked.remove(g)
}

// register makes c reachable and hands it the guests that came early.
func (e *Endpoint) register(c *Communicator) error {
	k := key{c.opt.Job, c.opt.Generation}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return fmt.Errorf("endpoint: %w", ErrClosed)
	case e.stale(k):
		return invalid("Generation %d is stale: this endpoint is at %d", k.generation, e.newest[k.job])
	}
	e.newest[k.job] = k.generation
	e.live[k] = c
	for _, g := range e.parked.list() {
		mine := key{g.hello.job, g.hello.generation}
		stale, latest := e.stale(mine), e.newest[mine.job]
		if mine != k && !stale && !e.foreign(mine.job) {
			continue // for a generation that is still to come
		}
		e.parked.remove(g)
		g.timer.Stop()
		e.tasks.Go(func() {
			_ = g.conn.SetDeadline(time.Now().Add(e.helloAfter))
			switch {
			case mine == k:
				g.present(c)
			case stale:
				g.refuse(replyStale, fmt.Appendf(nil, "generation %d is stale, this process is at %d", mine.generation, latest))
			default:
				g.refuse(replyForeign, fmt.Appendf(nil, "job %q is not known here", mine.job))
			}
		})
	}
	return nil
}

// unregister ends a generation; who dials it later is told the verdict.
func (e *Endpoint) unregister(c *Communicator, verdict []byte) {
	k := key{c.opt.Job, c.opt.Generation}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.live, k)
	e.over[k] = verdict
	e.order = append(e.order, k)
	if len(e.order) > remembered {
		delete(e.over, e.order[0])
		e.order = e.order[1:]
	}
}

// present checks that the guest knows the token, and introduces it.
func (g *guest) present(c *Communicator) {
	if !hmac.Equal(g.mac, dialerMAC(c.opt.Token, g.challenge, g.body)) {
		g.refuse(replyForeign, []byte("wrong token"))
		return
	}
	if code, detail := c.admit(g.hello); code != replyWelcome {
		g.refuse(code, detail)
		return
	}
	_, err := g.conn.Write(appendReply(c.opt.Token, g.mac, replyWelcome, nil))
	if err == nil {
		err = g.conn.SetDeadline(time.Time{})
	}
	c.adopt(g.hello, g.conn, err)
}

// refuse answers without a valid MAC: the token may be unknown here.
func (g *guest) refuse(code replyCode, detail []byte) {
	_ = g.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = g.conn.Write(appendReply("", g.mac, code, detail))
	_ = g.conn.Close()
}
