package inproc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T) (n *Network, a, b net.Conn) {
	t.Helper()
	n = NewNetwork()
	la, err := n.Listen("a")
	if err != nil {
		t.Fatal(err)
	}
	lb, err := n.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	if a, err = la.Dial(context.Background(), "b"); err != nil {
		t.Fatal(err)
	}
	if b, err = lb.Accept(context.Background()); err != nil {
		t.Fatal(err)
	}
	return n, a, b
}

func TestBytesArriveInOrderHoweverTheyAreCut(t *testing.T) {
	_, a, b := connect(t)
	sent := make([]byte, 3*pipeBytes+17)
	for i := range sent {
		sent[i] = byte(i * 7 / 3)
	}
	go func() {
		for rest, k := sent, 1; len(rest) > 0; k = k*3 + 1 {
			k = min(k, len(rest))
			_, _ = a.Write(rest[:k])
			rest = rest[k:]
		}
		_ = a.Close()
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	_ = b.Close()
}

func TestAWriterDoesNotNeedAReaderUpToTheBuffer(t *testing.T) {
	_, a, b := connect(t)
	for _, c := range []net.Conn{a, b} {
		if n, err := c.Write(make([]byte, pipeBytes)); n != pipeBytes || err != nil {
			t.Fatal(n, err)
		}
	}
	_ = a.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
	if n, err := a.Write(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(n, err)
	}
}

func TestADeadlineWakesAReadThatHasBegun(t *testing.T) {
	_, a, _ := connect(t)
	done := make(chan error, 1)
	go func() { _, err := a.Read(make([]byte, 1)); done <- err }()
	_ = a.SetReadDeadline(time.Unix(1, 0))
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestCloseEndsBothSides(t *testing.T) {
	_, a, b := connect(t)
	_ = a.Close()
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := b.Write([]byte("x")); err == nil {
		t.Fatal("wrote to a closed peer")
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

func TestKillResetsConnectionsAndFreesTheName(t *testing.T) {
	n, a, b := connect(t)
	if _, err := a.Write([]byte("never read")); err != nil {
		t.Fatal(err)
	}
	n.Kill("b")
	for _, c := range []net.Conn{a, b} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrReset) {
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, 1)); !errors.Is(err, ErrReset) {
			t.Fatal(err)
		}
	}
	l, err := n.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := l.Dial(context.Background(), "b"); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
}
