package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/tcp"
)

// listening is an endpoint on a port of this machine, with a session of generation 7.
func listening(t *testing.T, handshakeTimeout time.Duration) (*Endpoint, *Session) {
	t.Helper()
	transport, err := tcp.Listen(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEndpoint(transport, handshakeTimeout, false)
	s := New(Config{Job: "job", Generation: 7, Token: "secret", Rank: 1, World: 2, Endpoint: e, StallAfter: patience})
	if err := s.Start(noData{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.BeginClose()
		s.Leave()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		s.Wait()
	})
	return e, s
}

// stranger dials an endpoint, and reads its greeting.
func stranger(t *testing.T, e *Endpoint) (conn net.Conn, challenge []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if challenge, err = readGreeting(conn); err != nil {
		t.Fatal(err)
	}
	return conn, challenge
}

// message is a hello as it is sent.
func message(token string, challenge []byte, h hello) []byte {
	body := h.encode()
	return append(append(binary.LittleEndian.AppendUint16(nil, uint16(len(body))), body...), dialerMAC(token, challenge, body)...)
}

func probing(job string, generation uint64) hello {
	return hello{purpose: PurposeProbe, order: byteOrder(), from: 0, to: 1, world: 2, generation: generation, stall: patience, job: job}
}

// answerTo returns all that an endpoint sends after a hello.
func answerTo(t *testing.T, e *Endpoint, token string, h hello) []byte {
	t.Helper()
	conn, challenge := stranger(t, e)
	if _, err := conn.Write(message(token, challenge, h)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestStrangersAreToldNothing: whatever a dialer names, an answer before it has proved the token
// has the same bytes except for its MAC, which every dialer can compute.
func TestStrangersAreToldNothing(t *testing.T) {
	e, s := listening(t, patience)
	ended := New(Config{Job: "ended", Generation: 3, Token: "secret", Rank: 1, World: 2, Endpoint: e, StallAfter: patience})
	if err := ended.Start(noData{}); err != nil {
		t.Fatal(err)
	}
	ended.Fail(&AbortedError{Rank: 1, Generation: 3, Cause: errors.New("a reason that names the data set")})
	ended.BeginClose()
	ended.Leave()
	ended.Wait()
	e.SetService(&Service{Job: "job", Generation: 7, Token: "clients", Serve: func(context.Context, net.Conn) {}})
	defer e.SetService(nil)
	service := func(job string, generation uint64) hello {
		return hello{purpose: PurposeService, order: byteOrder(), world: 1, generation: generation, stall: patience, job: job}
	}
	control := probing("job", 7)
	control.purpose, control.world = PurposeControl, 3
	for name, h := range map[string]hello{
		"wrong token": probing("job", 7), "wrong token and world": control, "stale": probing("job", 6), "another job": probing("other", 7),
		"ended": probing("ended", 3), "before the ended one": probing("ended", 2),
		"service, wrong token": service("job", 7), "service, stale": service("job", 6), "service of another job": service("other", 7),
	} {
		answer := answerTo(t, e, "guess", h)
		if want := []byte{byte(replyRefused), 0, 0}; len(answer) != len(want)+macLen || !bytes.Equal(answer[:len(want)], want) {
			t.Errorf("%s: %q, want a refusal without detail", name, answer)
		}
	}
	// Those who know the token are told.
	if answer := answerTo(t, e, "secret", probing("ended", 3)); replyCode(answer[0]) != replyFailed || !bytes.Contains(answer, []byte("data set")) {
		t.Errorf("a member of an ended generation gets %q", answer)
	}
	wrong := probing("job", 7)
	wrong.world = 3
	if answer := answerTo(t, e, "secret", wrong); replyCode(answer[0]) != replyMismatch || !bytes.Contains(answer, []byte("World is 2 here")) {
		t.Errorf("a member with another world gets %q", answer)
	}
	if s.Failed() != nil {
		t.Error(s.Failed())
	}
}

// TestAHelloCannotBeReplayed: its MAC is over the challenge of its own connection.
func TestAHelloCannotBeReplayed(t *testing.T) {
	e, _ := listening(t, patience)
	conn, challenge := stranger(t, e)
	captured := message("secret", challenge, probing("job", 7))
	if _, err := conn.Write(captured); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || replyCode(answer[0]) != replyWelcome {
		t.Fatalf("the member gets %q, %v", answer, err)
	}
	again, _ := stranger(t, e)
	if _, err := again.Write(captured); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(again); err != nil || replyCode(answer[0]) != replyRefused {
		t.Fatalf("who repeats what a member has sent gets %q, %v", answer, err)
	}
}

// TestAStrangersHelloIsBounded: one that announces too much is not waited for, and one that arrives
// byte by byte has the same time in all as one that arrives at once.
func TestAStrangersHelloIsBounded(t *testing.T) {
	const within = 300 * time.Millisecond
	e, _ := listening(t, within)
	conn, _ := stranger(t, e)
	if _, err := conn.Write([]byte{0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); len(answer) > 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hello of 65535 bytes is answered with %q, %v", answer, err)
	}
	slow, challenge := stranger(t, e)
	began := time.Now()
	closed := make(chan struct{})
	go func() {
		_, _ = io.ReadAll(slow)
		close(closed)
	}()
	drip := time.NewTicker(within / 20)
	defer drip.Stop()
	text := message("secret", challenge, probing("job", 7))
	for i := 0; ; i = (i + 1) % (len(text) - 1) {
		select {
		case <-drip.C:
			_, _ = slow.Write(text[i : i+1]) // fails once the connection is closed
		case <-closed:
			if took := time.Since(began); took < within/2 {
				t.Errorf("closed after %v, a handshake has %v", took, within)
			}
			return
		case <-time.After(patience):
			t.Fatal("the connection stays open")
		}
	}
}

// TestManyStrangersCostLittle: of connections that say nothing, only as many are kept as one source
// may have, with their goroutines.
func TestManyStrangersCostLittle(t *testing.T) {
	e, _ := listening(t, patience)
	before := runtime.NumGoroutine()
	for range 5 * maxWaitingPerSource {
		stranger(t, e)
	}
	deadline := time.Now().Add(patience)
	for {
		handshakes, early := e.Waiting()
		if extra := runtime.NumGoroutine() - before; handshakes <= maxWaitingPerSource && early == 0 && extra <= 2*maxWaitingPerSource {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d handshakes, %d early, %d goroutines", handshakes, early, extra)
		}
		runtime.Gosched()
	}
}
