package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, o Options) *Transport {
	t.Helper()
	tr, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func exchange(t *testing.T, tr *Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := tr.Dial(ctx, tr.Addr())
	if err != nil {
		t.Fatal(err)
	}
	in, err := tr.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	got, err := io.ReadAll(in)
	if err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	_ = in.Close()
}

func TestBytesTravelOverIPv4AndIPv6(t *testing.T) {
	exchange(t, listen(t, Options{}))
	exchange(t, listen(t, Options{Host: "0.0.0.0", Advertise: "localhost"}))
	exchange(t, listen(t, Options{Host: "::1"}))
}

func TestTheFirstFreePortOfTheRangeIsTaken(t *testing.T) {
	first := listen(t, Options{})
	_, text, _ := net.SplitHostPort(first.Addr())
	taken, _ := strconv.Atoi(text)
	if _, err := Listen(Options{PortMin: taken, PortMax: taken}); err == nil {
		t.Fatal("a taken port was taken again")
	}
	// The neighbours may be taken by others; all that matters is that the range is searched.
	if tr, err := Listen(Options{PortMin: taken, PortMax: min(taken+50, 65535)}); err == nil {
		_ = tr.Close()
	} else if taken < 65000 {
		t.Fatal(err)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	for _, o := range []Options{
		{PortMin: -1},
		{PortMin: 10, PortMax: 9},
		{PortMin: 1, PortMax: 70000},
		{PortMax: 5},
		{Host: "0.0.0.0"},
		{Host: "::"},
		{Host: "no such host.invalid"},
	} {
		if tr, err := Listen(o); err == nil {
			_ = tr.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestAcceptEndsWithItsContextAndWorksAgain(t *testing.T) {
	tr := listen(t, Options{})
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { _, err := tr.Accept(ctx); done <- err }()
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Fatalf("Accept ended with %v", err)
	}
	exchange(t, tr)
}
