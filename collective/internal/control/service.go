package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Service answers peers' requests: connections of processes that are not in the generation and want
// something of a member, such as its state.
type Service struct {
	Job        string
	Generation uint64
	Token      string // of the requesting peers; differs from that of the members
	// Serve handles one connection and returns when that is over or ctx ends. The connection is
	// closed then, and when ctx ends.
	Serve func(ctx context.Context, conn net.Conn)
}

const maxRequests = 4

// DefaultStallAfter is the stall limit of sessions, and of hellos outside of any, where nobody
// compares it. It is more than the 10 s after which those who observe more of a rank take it for
// hanging, so that they are the first to do so.
const DefaultStallAfter = 11 * time.Second

// runningService is a service with the requests that it handles.
type runningService struct {
	Service
	ctx     context.Context //nolint:containedctx // ends when the service is replaced
	end     context.CancelFunc
	running sync.WaitGroup
	count   int // of running requests; guarded by the endpoint's mu
}

// SetService makes s the service that peers' requests reach from now on; nil refuses them. It ends
// the requests to the previous service and waits until they are over.
func (e *Endpoint) SetService(s *Service) {
	var next *runningService
	if s != nil {
		next = &runningService{Service: *s}
		next.ctx, next.end = context.WithCancel(e.ctx)
	}
	e.mu.Lock()
	previous := e.service
	e.service = next
	e.mu.Unlock()
	if previous != nil {
		previous.end()
		previous.running.Wait()
	}
}

// serve answers the hello of a peer's request and serves it.
func (e *Endpoint) serve(p *pendingConn) {
	e.mu.Lock()
	s := e.service
	code, detail := replyWelcome, ""
	switch {
	case s == nil || s.Job != p.hello.job || s.Generation != p.hello.generation || e.closed || !p.provesToken(s.Token):
		code = replyRefused
	case p.hello.order != byteOrder():
		code, detail = replyMismatch, "other byte order"
	case p.hello.encrypt != e.encrypt:
		code, detail = replyMismatch, fmt.Sprintf("encryption is %t here, %t there", e.encrypt, p.hello.encrypt)
	case s.count >= maxRequests:
		code, detail = replyBusy, fmt.Sprintf("%d requests are being served", maxRequests)
	default:
		s.count++
		s.running.Add(1) // under mu: none is added after SetService has replaced s
	}
	e.mu.Unlock()
	if code != replyWelcome {
		p.refuse(code, []byte(detail))
		return
	}
	e.tasks.Go(func() {
		defer s.running.Done()
		defer func() {
			_ = p.conn.Close()
			e.mu.Lock()
			s.count--
			e.mu.Unlock()
		}()
		defer context.AfterFunc(s.ctx, func() { _ = p.conn.Close() })()
		if _, err := p.conn.Write(appendReply(s.Token, p.mac, replyWelcome, nil)); err != nil {
			return
		}
		_ = p.conn.SetDeadline(time.Time{})
		if conn, err := p.secured(s.Token); err == nil {
			s.Serve(s.ctx, conn)
		}
	})
}

// DialService connects to the service at an address. The Serve field of s is not used. A refusal is
// a *RefusedError with rank -1.
func (e *Endpoint) DialService(ctx context.Context, address string, s Service) (net.Conn, error) {
	return e.dialOutside(ctx, address, s.Token, hello{
		purpose: PurposeService, order: byteOrder(), world: 1, generation: s.Generation,
		stall: DefaultStallAfter, encrypt: e.encrypt, job: s.Job,
	})
}

// Ping returns nil if an endpoint answers at an address, whether it knows the job or not.
func (e *Endpoint) Ping(ctx context.Context, address, job string, generation uint64) error {
	conn, err := e.dialOutside(ctx, address, "", hello{
		purpose: PurposeProbe, order: byteOrder(), from: 0, to: 1, world: 2, generation: generation,
		stall: DefaultStallAfter, job: job,
	})
	if err == nil {
		_ = conn.Close()
	}
	if errors.Is(err, ErrRefused) {
		return nil
	}
	return err
}

// dialOutside dials and shakes hands outside of any generation.
func (e *Endpoint) dialOutside(ctx context.Context, address, token string, h hello) (net.Conn, error) {
	conn, err := e.transport.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	conn, code, detail, err := introduce(ctx, conn, token, h)
	if err == nil && code != replyWelcome {
		err = refusedBy(-1, code, detail)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
