package control

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Transport makes connections. tcp.Transport and inproc.Listener implement it. It must be safe for
// concurrent use.
//
// Its connections must be reliable and ordered, and must honour deadlines, also those set while a
// call is blocked.
type Transport interface {
	// Addr is what a peer passes to its Dial to reach this transport.
	Addr() string
	Dial(ctx context.Context, addr string) (net.Conn, error)
	// Accept returns the next connection. It fails when ctx ends or after Close.
	Accept(ctx context.Context) (net.Conn, error)
	Close() error
}

// Endpoint accepts the connections of all generations of a process.
type Endpoint struct {
	transport Transport
	ctx       context.Context //nolint:containedctx // the endpoint's own end, not a caller's
	end       context.CancelFunc
	tasks     sync.WaitGroup

	handshakeTimeout time.Duration
	encrypt          bool

	mu         sync.Mutex
	closed     bool
	sessions   map[generationKey]*Session
	newest     map[string]uint64                 // per job, the newest generation that began here
	ended      map[generationKey]endedGeneration // the last ones that ended here
	endedOrder []generationKey                   // keys of ended, oldest first
	handshakes *connLimiter[net.Conn]            // connections whose hello is awaited
	early      *connLimiter[*pendingConn]
	service    *runningService // nil = peers' requests are refused
}

type generationKey struct {
	job        string
	generation uint64
}

// endedGeneration is what late dialers that know the token are told.
type endedGeneration struct {
	token   string
	failure []byte // encoded
}

const (
	// rememberedGenerations is the number of ended generations for which a late dialer is told how
	// they ended, rather than only that they did.
	rememberedGenerations = 16
	// earlyTimeout is how long a connection waits for a generation that has not begun here.
	earlyTimeout = 30 * time.Second

	maxWaitingPerSource = 64
	maxWaiting          = 256
)

// NewEndpoint starts to accept connections on t, which it closes in its own Close.
// With encrypt its connections, those that it accepts and those that it dials, are encrypted,
// except for those that carry nothing; endpoints that differ in that refuse each other.
func NewEndpoint(t Transport, handshakeTimeout time.Duration, encrypt bool) *Endpoint {
	ctx, end := context.WithCancel(context.Background())
	e := &Endpoint{
		transport: t, ctx: ctx, end: end, handshakeTimeout: handshakeTimeout, encrypt: encrypt,
		sessions: map[generationKey]*Session{}, newest: map[string]uint64{}, ended: map[generationKey]endedGeneration{},
		handshakes: newConnLimiter[net.Conn](maxWaitingPerSource, maxWaiting),
		early:      newConnLimiter[*pendingConn](maxWaitingPerSource, maxWaiting),
	}
	e.tasks.Go(e.accept)
	return e
}

// Addr is what peers dial.
func (e *Endpoint) Addr() string { return e.transport.Addr() }

// Transport is the transport that the endpoint accepts on.
func (e *Endpoint) Transport() Transport { return e.transport }

// Waiting returns how many connections are in their handshake, and how many wait for a generation
// that has not begun here.
func (e *Endpoint) Waiting() (handshakes, early int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.handshakes.list()), len(e.early.list())
}

// Close stops accepting, drops connections that wait, and returns when every goroutine of the
// endpoint has ended.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	waiting := e.early.clear()
	e.mu.Unlock()
	e.end()
	err := e.transport.Close()
	for _, p := range waiting {
		p.timer.Stop()
		_ = p.conn.Close()
	}
	e.tasks.Wait()
	return err
}

func (e *Endpoint) accept() {
	for wait := time.Millisecond; ; {
		conn, err := e.transport.Accept(e.ctx)
		if e.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			// Out of file descriptors, or the transport is gone for good: the sessions notice that
			// by themselves, this loop must only not spin.
			select {
			case <-time.After(wait):
			case <-e.ctx.Done():
			}
			wait = min(2*wait, time.Second)
			continue
		}
		wait = time.Millisecond
		e.mu.Lock()
		evicted, ok := e.handshakes.add(conn, sourceOf(conn))
		e.mu.Unlock()
		if ok {
			_ = evicted.Close()
		}
		e.tasks.Go(func() { e.handshake(conn) })
	}
}

// handshake reads one hello and routes the connection.
func (e *Endpoint) handshake(conn net.Conn) {
	// The deadline covers silence; this covers Close.
	stop := context.AfterFunc(e.ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(e.handshakeTimeout))
	challenge := make([]byte, challengeLen)
	_, _ = rand.Read(challenge) // never fails: crypto/rand.Read
	var body, sum []byte
	var h hello
	_, err := conn.Write(greeting(challenge))
	if err == nil {
		body, h, sum, err = readHello(conn)
	}
	e.mu.Lock()
	waiting := e.handshakes.remove(conn)
	e.mu.Unlock()
	if err != nil || !waiting { // from here on nobody else closes it
		_ = conn.Close()
		return
	}
	p := &pendingConn{conn: conn, hello: h, body: body, mac: sum, challenge: challenge}
	if h.purpose == PurposeService {
		e.serve(p)
		return
	}
	s, code, detail, evicted := e.route(p)
	if evicted != nil {
		evicted.timer.Stop()
		evicted.refuse(replyBusy, nil)
	}
	switch {
	case s != nil:
		p.welcome(s)
	case code != replyWelcome:
		p.refuse(code, detail)
	}
}

// route returns the session that a connection is for, or a refusal, or neither if it has to wait
// for its generation. A connection that waits may evict another one.
func (e *Endpoint) route(p *pendingConn) (_ *Session, _ replyCode, _ []byte, evicted *pendingConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := generationKey{p.hello.job, p.hello.generation}
	if s := e.sessions[k]; s != nil {
		return s, replyWelcome, nil, nil
	}
	if g, ok := e.ended[k]; ok && p.provesToken(g.token) {
		return nil, replyFailed, g.failure, nil
	}
	switch {
	case !e.mayBegin(k):
		return nil, replyRefused, nil, nil
	case p.hello.purpose == PurposeProbe || e.closed:
		return nil, replyBusy, nil, nil
	}
	evicted, _ = e.early.add(p, sourceOf(p.conn))
	p.timer = time.AfterFunc(earlyTimeout, func() {
		if e.removeEarly(p) {
			p.refuse(replyBusy, nil)
		}
	})
	return nil, replyWelcome, nil, evicted
}

// mayBegin reports whether a generation can still begin here. Of the jobs that are not known here,
// only those of the family of a known one can be expected. The caller holds mu.
func (e *Endpoint) mayBegin(k generationKey) bool {
	newest, known := e.newest[k.job]
	_, derived := e.newest[family(k.job)]
	if known {
		return k.generation > newest
	}
	return derived || len(e.newest) == 0
}

// family returns the part of a job's name before the last slash: the job that a duplicate or a
// subgroup was made of, and what jobs of the same ranks at different times share; empty = none.
func family(job string) string { return job[:max(strings.LastIndexByte(job, '/'), 0)] }

func (e *Endpoint) removeEarly(p *pendingConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.early.remove(p)
}

// register makes s reachable and hands it the connections that came early.
func (e *Endpoint) register(s *Session) error {
	k := generationKey{s.cfg.Job, s.cfg.Generation}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch newest, known := e.newest[k.job]; {
	case e.closed:
		return fmt.Errorf("endpoint: %w", ErrClosed)
	case known && k.generation <= newest:
		return Invalid("Generation %d is stale: this endpoint is at %d", k.generation, newest)
	}
	e.newest[k.job] = k.generation
	if f := family(k.job); f != "" {
		e.newest[f] = max(e.newest[f], 0) // others of it can be expected too
	}
	e.sessions[k] = s
	for _, p := range e.early.list() {
		theirs := generationKey{p.hello.job, p.hello.generation}
		if theirs != k && e.mayBegin(theirs) {
			continue // for a generation that is still to come
		}
		e.early.remove(p)
		p.timer.Stop()
		e.tasks.Go(func() {
			_ = p.conn.SetDeadline(time.Now().Add(e.handshakeTimeout))
			if theirs == k {
				p.welcome(s)
			} else {
				p.refuse(replyRefused, nil)
			}
		})
	}
	return nil
}

// unregister ends a generation. Late dialers are told the failure.
func (e *Endpoint) unregister(s *Session, failure []byte) {
	k := generationKey{s.cfg.Job, s.cfg.Generation}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, k)
	e.ended[k] = endedGeneration{token: s.cfg.Token, failure: failure}
	e.endedOrder = append(e.endedOrder, k)
	if len(e.endedOrder) > rememberedGenerations {
		delete(e.ended, e.endedOrder[0])
		e.endedOrder = e.endedOrder[1:]
	}
}

// pendingConn is a connection whose hello was read and which has no answer yet.
type pendingConn struct {
	conn      net.Conn
	hello     hello
	body, mac []byte
	challenge []byte
	timer     *time.Timer
}

// provesToken reports whether the dialer knows the token.
func (p *pendingConn) provesToken(token string) bool {
	return hmac.Equal(p.mac, dialerMAC(token, p.challenge, p.body))
}

// welcome hands the connection to a session if the dialer knows the token and is admitted.
func (p *pendingConn) welcome(s *Session) {
	if !p.provesToken(s.cfg.Token) {
		p.refuse(replyRefused, nil)
		return
	}
	if code, detail := s.admit(p.hello); code != replyWelcome {
		p.refuse(code, detail)
		return
	}
	_, err := p.conn.Write(appendReply(s.cfg.Token, p.mac, replyWelcome, nil))
	if err == nil {
		err = p.conn.SetDeadline(time.Time{})
	}
	conn := p.conn
	if err == nil {
		conn, err = p.secured(s.cfg.Token)
	}
	s.adopt(p.hello, conn, err)
}

// secured returns the connection as it is used after the handshake.
func (p *pendingConn) secured(token string) (net.Conn, error) {
	if !p.hello.encrypt || !p.hello.purpose.encrypts() {
		return p.conn, nil
	}
	c, err := secure(p.conn, token, p.challenge, p.mac, false)
	if err != nil {
		return p.conn, err
	}
	return c, nil
}

// refuse answers without a valid MAC: the token may be unknown here. A detail is for dialers that
// have proved the token.
func (p *pendingConn) refuse(code replyCode, detail []byte) {
	_ = p.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = p.conn.Write(appendReply("", p.mac, code, detail))
	_ = p.conn.Close()
}
