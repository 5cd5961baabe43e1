package statesync

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// Server serves the state of a member to newcomers, from its newest commit and without the help of
// the trainer.
type Server struct {
	store    *CommitStore
	layout   Digest
	chunks   int
	prologue func() []byte
	reach    func(ctx context.Context, address string) error
}

// NewServer returns a server of a replica whose state is registered. prologue returns the encoded
// prologue; reach connects to the address of a newcomer and hangs up.
func NewServer(r *Replica, prologue func() []byte, reach func(ctx context.Context, address string) error) *Server {
	return &Server{
		store: r.store, layout: r.config.Layout(), chunks: chunkCount(r.Tensors.size), prologue: prologue, reach: reach,
	}
}

// Serve serves one newcomer until it hangs up. Errors are not reported: the newcomer sees that its
// connection ends.
func (s *Server) Serve(ctx context.Context, conn net.Conn) {
	for {
		_ = conn.SetDeadline(time.Time{})
		request, body, err := readMessage(conn, max(maxAddress, stateRequestBytes(s.chunks)))
		if err != nil {
			return
		}
		_ = conn.SetWriteDeadline(time.Now().Add(ioTimeout))
		switch request {
		case requestReach:
			err = s.serveReach(ctx, conn, string(body))
		case requestState:
			err = s.serveState(ctx, conn, body)
		case requestPrologue:
			err = writeMessage(conn, responseYes, s.prologue())
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *Server) serveReach(ctx context.Context, conn net.Conn, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := s.reach(ctx, address); err != nil {
		return writeMessage(conn, responseNo, []byte(err.Error()))
	}
	return writeMessage(conn, responseYes, nil)
}

func (s *Server) serveState(ctx context.Context, conn net.Conn, body []byte) error {
	if len(body) != stateRequestBytes(s.chunks) || Digest(body[1:1+sha256.Size]) != s.layout {
		return writeMessage(conn, responseNo, []byte("the states of this worker and of the newcomer differ in tensors, objects or data set"))
	}
	final, known := body[0] == 1, body[1+sha256.Size:]
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	if final {
		defer watchHangup(conn, cancel)()
	}
	commit, unpin := s.store.pin(waitCtx, final)
	switch {
	case commit == nil && final:
		return io.EOF
	case commit == nil:
		return writeMessage(conn, responseNo, []byte(noCommit))
	}
	defer unpin()
	if !final {
		s.store.Reserve(commit)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(ioTimeout)) // pin may have waited for long
	generation, step := s.store.Version(commit)
	head := binary.LittleEndian.AppendUint64(nil, generation)
	head = binary.LittleEndian.AppendUint64(head, step)
	if err := writeMessage(conn, responseYes, append(head, commit.meta...)); err != nil {
		return err
	}
	for i := range commit.hashes {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_ = conn.SetWriteDeadline(time.Now().Add(ioTimeout))
		h := commit.hash(i)
		var err error
		if h == hashAt(known, i) {
			_, err = conn.Write([]byte{chunkSame})
		} else if _, err = conn.Write(append([]byte{chunkSent}, h[:]...)); err == nil {
			_, err = conn.Write(chunk(commit.data, i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// watchHangup calls hungUp when a connection ends on which nothing is expected. Calling the result
// ends the watch.
func watchHangup(conn net.Conn, hungUp func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		if _, err := conn.Read(b[:]); !isTimeout(err) {
			hungUp()
		}
	}()
	return func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-done
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
