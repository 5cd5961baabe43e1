package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"
)

// dial connects to a rank and returns when the rank has accepted. A refusal is a *RefusedError,
// except that a generation that failed there returns its failure.
func (s *Session) dial(ctx context.Context, rank int, why Purpose, stream int) (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		conn, err := s.dialOnce(ctx, rank, why, stream)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.code != replyBusy {
			return conn, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *Session) dialOnce(ctx context.Context, rank int, why Purpose, stream int) (net.Conn, error) {
	addr, err := s.cfg.Peers(ctx, rank)
	if err != nil {
		return nil, fmt.Errorf("address of rank %d: %w", rank, err)
	}
	conn, err := s.dialAddr(ctx, addr)
	if err != nil {
		return nil, err
	}
	// The acceptor may have to wait for its own assignment before it answers, so there is no
	// deadline but the context's.
	conn, code, detail, err := introduce(ctx, conn, s.cfg.Token, hello{
		purpose: why, order: byteOrder(), from: s.cfg.Rank, to: rank, world: s.cfg.World, stream: stream,
		generation: s.cfg.Generation, settings: s.cfg.Settings, stall: s.cfg.StallAfter,
		encrypt: s.cfg.Endpoint.encrypt, job: s.cfg.Job,
	})
	if err == nil && code != replyWelcome {
		err = refusedBy(rank, code, detail)
		if failure, ok := s.decode(detail); ok && code == replyFailed {
			err = failure
		}
	}
	if err != nil {
		if why == PurposeControl && s.Failed() != nil {
			// The peer may have welcomed us in this moment; it reads this next.
			s.sendAbort(newLink(s, conn, rank))
		}
		if why == PurposeDeathWatch {
			closeUnwatched(conn) // likewise
		}
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// dialAddr makes a connection within half the time that a peer may be silent. A machine that is
// there answers at once, even if its program is not ready; across a link that drops everything the
// system would try for minutes.
func (s *Session) dialAddr(ctx context.Context, addr string) (net.Conn, error) {
	limit, cancel := context.WithTimeoutCause(ctx, s.cfg.StallAfter/2, ErrUnreachable)
	defer cancel()
	conn, err := s.cfg.Endpoint.transport.Dial(limit, addr)
	if err != nil && ctx.Err() == nil && limit.Err() != nil {
		return nil, ErrUnreachable
	}
	return conn, err
}

// introduce is the dialer's side of the handshake. It ends with ctx, and conn cannot be used then.
// It returns the connection as a peer that has said welcome uses it.
func introduce(ctx context.Context, conn net.Conn, token string, h hello) (_ net.Conn, code replyCode, detail []byte, err error) {
	plain, interrupted := conn, make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = plain.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-interrupted // what is still said on the connection has a limit of its own
			err = context.Cause(ctx)
		}
	}()
	challenge, err := readGreeting(conn)
	if err != nil {
		return conn, 0, nil, err
	}
	_, _ = rand.Read(h.random[:]) // never fails
	body := h.encode()
	sum := dialerMAC(token, challenge, body)
	message := append([]byte{byte(len(body)), byte(len(body) >> 8)}, body...)
	if _, err := conn.Write(append(message, sum...)); err != nil {
		return conn, 0, nil, err
	}
	if code, detail, err = readReply(conn, token, sum); h.encrypt && h.purpose.encrypts() {
		secured, wrong := secure(conn, token, challenge, sum, true)
		if wrong != nil {
			return conn, code, detail, errors.Join(err, wrong)
		}
		conn = secured
	}
	return conn, code, detail, err
}

// Open dials a rank for data. While the rank does not answer, as one may that has not been told of
// the generation yet, Open probes whether it is alive.
func (s *Session) Open(ctx context.Context, to int, why Purpose, stream int) (net.Conn, error) {
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := s.dial(dialing, to, why, stream)
		done <- result{conn, err}
	}()
	for {
		select {
		case r := <-done:
			return r.conn, s.OrContext(ctx, r.err)
		case <-time.After(s.cfg.StallAfter / 2):
			if err := s.Probe(ctx, to); err != nil {
				cancel()
				if r := <-done; r.conn != nil {
					_ = r.conn.Close()
				}
				return nil, s.OrContext(ctx, err)
			}
		}
	}
}

// AwaitDial waits until a rank has dialed, and probes now and then whether it is alive. arrived and
// left are closed when it has dialed, and when it has left.
func (s *Session) AwaitDial(from int, arrived, left <-chan struct{}) error {
	select {
	case <-arrived:
		return nil
	default:
	}
	for {
		select {
		case <-arrived:
			return nil
		case <-s.ctx.Done():
			return s.Ended()
		case <-left:
			return s.Lost(from, ErrLeft)
		case <-time.After(s.cfg.StallAfter / 2):
			if err := s.Probe(s.ctx, from); err != nil {
				return err
			}
		}
	}
}

// Probe asks a rank's endpoint for a sign of life. A rank that has left the generation counts as
// lost.
func (s *Session) Probe(ctx context.Context, rank int) error {
	limit, cancel := context.WithTimeoutCause(ctx, s.cfg.StallAfter/2, ErrSilent)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	conn, err := s.dialOnce(limit, rank, PurposeProbe, 0)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.code == replyBusy {
		return nil // alive, but not in this generation yet
	}
	if IsOutcome(err) || s.ctx.Err() != nil || ctx.Err() != nil {
		return err
	}
	return s.Lost(rank, err)
}
