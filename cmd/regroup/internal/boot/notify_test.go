package boot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// manager stands in for systemd: it has the socket, and sets the variables of a process.
type manager struct {
	t  *testing.T
	at *net.UnixConn
}

func newManager(t *testing.T, socket, watchdog, pid string) manager {
	t.Helper()
	at, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	t.Setenv(envNotify, socket)
	t.Setenv(envWatchdog, watchdog)
	t.Setenv(envWatchdogPID, pid)
	return manager{t: t, at: at}
}

// next waits for a message.
func (m manager) next() string {
	m.t.Helper()
	if err := m.at.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		m.t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := m.at.Read(b)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b[:n])
}

// hears waits until systemd has heard a message, and fails if it hears another before, but for
// those that the process is alive.
func (m manager) hears(want string) {
	m.t.Helper()
	for {
		switch got := m.next(); {
		case got == want:
			return
		case got != notifyAlive:
			m.t.Fatalf("systemd hears %q, want %q", got, want)
		}
	}
}

// alive waits for several messages that the process is alive, and fails at any other.
func (m manager) alive() {
	m.t.Helper()
	for range 3 {
		if got := m.next(); got != notifyAlive {
			m.t.Fatalf("systemd hears %q, want %q", got, notifyAlive)
		}
	}
}

// nothingElse fails if there is a message that nobody has read, but for those that the process was
// alive.
func (m manager) nothingElse() {
	m.t.Helper()
	if err := (Notifier{socket: m.at.LocalAddr().String()}).send("end"); err != nil {
		m.t.Fatal(err)
	}
	m.hears("end")
}

// TestSystemdHearsHowAProcessIs: it is ready when it says so, alive until it has ended, and
// stopping from the signal on. What systemd has set is gone from the environment.
func TestSystemdHearsHowAProcessIs(t *testing.T) {
	for name, socket := range map[string]string{
		"path": filepath.Join(t.TempDir(), "notify"), "abstract": "@regroup-test-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, socket, "100000", strconv.Itoa(os.Getpid()))
			n := TakeNotifier()
			for _, v := range []string{envNotify, envWatchdog, envWatchdogPID} {
				if text, there := os.LookupEnv(v); there {
					t.Errorf("%s is %q still", v, text)
				}
			}
			var isReady atomic.Bool
			asked := make(chan struct{}, 1000)
			ready := func() error {
				asked <- struct{}{}
				if !isReady.Load() {
					return errors.New("not yet")
				}
				return nil
			}
			ctx, interrupt := context.WithCancel(t.Context())
			boom, finish, ended := errors.New("boom"), make(chan struct{}), make(chan error)
			go func() {
				ended <- n.During(ctx, slog.New(slog.DiscardHandler), ready, func(context.Context) error { <-finish; return boom })
			}()
			<-asked
			<-asked
			m.alive()
			isReady.Store(true)
			m.hears(notifyReady)
			m.alive()
			interrupt()
			m.hears(notifyStopping)
			m.alive()
			close(finish)
			if err := <-ended; !errors.Is(err, boom) {
				t.Errorf("%v, want what the function returned", err)
			}
			m.nothingElse()
		})
	}
}

// TestSystemdHearsOfAConnectedProcess: it is ready when it is so at the health endpoint, and has
// no watchdog if that of another process was inherited.
func TestSystemdHearsOfAConnectedProcess(t *testing.T) {
	s := jetstreamtest.One(t)
	p, err := Open(t.Context(), Config{Server: s.URL(), LogFormat: "text", Wait: 20 * time.Second}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m := newManager(t, filepath.Join(t.TempDir(), "notify"), "1000", strconv.Itoa(os.Getppid()))
	var begun atomic.Bool
	asked := make(chan struct{}, 1000)
	err = p.WithHealth(t.Context(), func() error {
		asked <- struct{}{}
		if !begun.Load() {
			return errors.New("not yet")
		}
		return nil
	}, func(context.Context) error {
		<-asked
		begun.Store(true)
		if got := m.next(); got != notifyReady {
			t.Errorf("systemd hears %q, want %q", got, notifyReady)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := m.next(); got != notifyStopping {
		t.Errorf("systemd hears %q, want %q", got, notifyStopping)
	}
	m.nothingElse()
}

// TestAProcessRunsWithoutSystemd: one that nobody waits for, and one whose socket is gone, which is
// logged once.
func TestAProcessRunsWithoutSystemd(t *testing.T) {
	for socket, want := range map[string]int{"": 0, filepath.Join(t.TempDir(), "gone"): 1} {
		t.Setenv(envNotify, socket)
		t.Setenv(envWatchdog, "1000")
		var log bytes.Buffer
		var asked atomic.Bool
		err := TakeNotifier().During(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), func() error { asked.Store(true); return nil }, func(ctx context.Context) error {
			if socket == "" {
				return nil
			}
			return wait.Until(ctx, time.Millisecond, func() (bool, error) { return asked.Load(), nil })
		})
		if got := strings.Count(log.String(), "systemd is not told"); err != nil || got != want {
			t.Errorf("%q: %v, %d warnings, want %d:\n%s", socket, err, got, want, log.String())
		}
	}
}
