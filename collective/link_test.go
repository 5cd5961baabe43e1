package collective

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// failedLink is a link of a communicator that has failed, and the other end of its connection. The deadline that fail has set
// is over.
func failedLink(t *testing.T) (*link, net.Conn) {
	t.Helper()
	conn, peer := net.Pipe()
	t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
	c := &Communicator{opt: Options{Rank: 1, World: 2}, quit: make(chan struct{})}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	c.fail(&AbortedError{Rank: 1, Cause: errors.New("no more")})
	if err := errors.Join(conn.SetWriteDeadline(time.Unix(1, 0)), peer.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	return newLink(c, conn, 0), peer
}

// TestAFailureIsSaidHoweverLate: on a busy machine a writer may run long after the failure.
func TestAFailureIsSaidHoweverLate(t *testing.T) {
	l, peer := failedLink(t)
	go l.write()
	b := make([]byte, headLen)
	if _, err := io.ReadFull(peer, b); err != nil {
		t.Fatal(err)
	}
	if h, err := parseHead(b); err != nil || h.kind != frameAbort {
		t.Fatalf("%+v, %v", h, err)
	}
}

// TestAFailureThatCannotBeSaidClosesTheConnection: else the peer would take this rank for silent, much later.
func TestAFailureThatCannotBeSaidClosesTheConnection(t *testing.T) {
	l, peer := failedLink(t)
	l.torn = true // an earlier message was cut off
	go l.write()
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}
