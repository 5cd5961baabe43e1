package control

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

const patience = 60 * time.Second

// noData is a data plane without connections.
type noData struct{}

func (noData) Admit(Purpose, int, int) string    { return "" }
func (noData) Adopt(Purpose, int, int, net.Conn) {}
func (noData) Interrupt()                        {}
func (noData) PeerLeft(int)                      {}
func (noData) WaitTime() time.Duration           { return 0 }

// failedLink is a link of a session that has failed, and the other end of its connection, whose
// buffers take what is said though nobody reads yet. The deadline that Fail has set is over.
func failedLink(t *testing.T) (*link, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	s := New(Config{Rank: 1, World: 2})
	s.data = noData{}
	s.Fail(&AbortedError{Rank: 1, Cause: errors.New("no more")})
	if err := errors.Join(conn.SetWriteDeadline(time.Unix(1, 0)), peer.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	return newLink(s, conn, 0), peer
}

// TestAFailureIsSaidHoweverLate: on a busy machine a writer may run long after the failure.
func TestAFailureIsSaidHoweverLate(t *testing.T) {
	l, peer := failedLink(t)
	go l.write()
	b := make([]byte, frame.HeaderLen)
	if _, err := io.ReadFull(peer, b); err != nil {
		t.Fatal(err)
	}
	if h, err := frame.Parse(b); err != nil || h.Kind != frame.Abort {
		t.Fatalf("%+v, %v", h, err)
	}
}

// TestAFailureThatCannotBeSaidClosesTheConnection: else the peer would take this rank for silent,
// much later.
func TestAFailureThatCannotBeSaidClosesTheConnection(t *testing.T) {
	l, peer := failedLink(t)
	l.torn = true // an earlier message was cut off
	go l.write()
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// late is a connection on a machine so busy that every time limit is over before what it limits
// begins.
type late struct{ net.Conn }

func (l late) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		t = time.Unix(1, 0)
	}
	return l.Conn.SetWriteDeadline(t)
}

// TestWhoDoesNotWatchIsNotDeadHoweverLate: the peer takes a connection that ends without a byte for
// a death. The deadline is that of a dial which was interrupted.
func TestWhoDoesNotWatchIsNotDeadHoweverLate(t *testing.T) {
	conn, peer := net.Pipe()
	t.Cleanup(func() { _ = peer.Close() })
	if err := errors.Join(conn.SetDeadline(time.Unix(1, 0)), peer.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	go closeUnwatched(late{conn})
	if b, err := io.ReadAll(peer); err != nil || len(b) != 1 {
		t.Errorf("the peer hears %q, %v", b, err)
	}
}
