package deathwatch

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	patience = 30 * time.Second
	asChild  = "DEATHWATCH_TEST_CHILD"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(asChild); address != "" {
		if err := child(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child allocates much memory, opens an ordinary and a watched connection, and waits to be killed.
func child(address string) error {
	memory := make([]byte, 128<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	ordinary, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	watchedConn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	if _, err := Watch(watchedConn, func() {}); err != nil {
		return err
	}
	if _, err := ordinary.Write(memory[:1]); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, ordinary)
	return err
}

func listener(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

func accept(t *testing.T, l *net.TCPListener) net.Conn {
	t.Helper()
	_ = l.SetDeadline(time.Now().Add(patience))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDeathIsReportedBeforeMemoryIsReclaimed passes if that holds once in ten times: the kernel
// may schedule the two waiting goroutines in any order.
func TestDeathIsReportedBeforeMemoryIsReclaimed(t *testing.T) {
	l := listener(t)
	for range 10 {
		if before(t, l) {
			return
		}
	}
	t.Error("the end of an ordinary connection was always noticed first")
}

func before(t *testing.T, l *net.TCPListener) bool {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"="+l.Addr().String())
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	ordinary := accept(t, l)
	defer ordinary.Close()
	died := make(chan struct{})
	stop, err := Watch(accept(t, l), func() { close(died) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := io.ReadFull(ordinary, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, ordinary)
		close(ended)
	}()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-died:
		select {
		case <-ended:
			return false // both
		default:
			<-ended
			return true
		}
	case <-ended:
	case <-time.After(patience):
		t.Fatal("nothing has ended")
	}
	select {
	case <-died:
	case <-time.After(patience):
		t.Fatal("the death was not noticed")
	}
	return false
}

// joined is a connection with both of its ends.
func joined(t *testing.T) (a, b net.Conn) {
	l := listener(t)
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return a, accept(t, l)
}

// TestStoppingIsNoDeath: nor is an end that could not be watched.
func TestStoppingIsNoDeath(t *testing.T) {
	died := func() { t.Error("a death was noticed") }
	for name, end := range map[string]func(c net.Conn){
		"stop": func(c net.Conn) {
			stop, err := Watch(c, died)
			if err != nil {
				t.Fatal(err)
			}
			stop()
			stop()
		},
		"cannot watch": func(c net.Conn) {
			if _, err := Watch(opaque{c}, died); err == nil {
				t.Fatal("watched a connection without a descriptor")
			}
		},
		"reset": func(c net.Conn) {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := joined(t)
			stop, err := Watch(a, died)
			if err != nil {
				t.Fatal(err)
			}
			end(b)
			// Polled: the watch of a connection that ends without a death ends silently.
			for end := time.Now().Add(patience); watched() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the end was not noticed")
				}
			}
			stop()
		})
	}
}

// opaque is a connection without a descriptor.
type opaque struct{ net.Conn }

func watched() int {
	mu.Lock()
	defer mu.Unlock()
	if current == nil {
		return 0
	}
	return len(current.died)
}

// TestWatchedConnectionsBelongToTheThreadAlone: a child that is forked gets no copy, and this
// process has no descriptor of it.
func TestWatchedConnectionsBelongToTheThreadAlone(t *testing.T) {
	a, b := joined(t)
	before := sockets(t)
	died := make(chan struct{})
	stop, err := Watch(a, func() { close(died) })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if after := sockets(t); after > before { // one less for a, one more for the way to the thread
		t.Errorf("%d sockets, %d before", after, before)
	}
	_ = b.Close() // as when a process has died
	select {
	case <-died:
	case <-time.After(patience):
		t.Fatal("the end was not noticed")
	}
	if watched() != 0 {
		t.Error("it is still watched")
	}
}

func sockets(t *testing.T) (n int) {
	t.Helper()
	const mine = "/proc/self/fd"
	all, err := os.ReadDir(mine)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		what, err := os.Readlink(filepath.Join(mine, f.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if strings.HasPrefix(what, "socket:") {
			n++
		}
	}
	return n
}

// TestManyWatches starts and stops watches again and again, so that threads come and go.
func TestManyWatches(t *testing.T) {
	l := listener(t)
	for range 20 {
		var stop []func()
		for range 20 {
			a, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []net.Conn{a, accept(t, l)} {
				r, err := Watch(c, func() { t.Error("a death was noticed") })
				if err != nil {
					t.Fatal(err)
				}
				stop = append(stop, r)
			}
		}
		for _, r := range stop {
			r()
		}
	}
	if watched() != 0 {
		t.Error("something is still watched")
	}
}
