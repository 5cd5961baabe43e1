package boot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
)

// Variables by which systemd says that it wants to hear of a process that it has started
// (sd_notify(3), sd_watchdog_enabled(3)).
const (
	envNotify      = "NOTIFY_SOCKET"
	envWatchdog    = "WATCHDOG_USEC"
	envWatchdogPID = "WATCHDOG_PID"
)

// Messages to systemd.
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
	notifyAlive    = "WATCHDOG=1"
)

const (
	askEvery     = 100 * time.Millisecond // whether the process is ready
	notifyWithin = time.Second
)

// Notifier tells systemd how this process is. The zero Notifier tells nobody.
type Notifier struct {
	socket string        // its path; one that begins with @ is abstract
	every  time.Duration // how often systemd hears that the process is alive; 0 = it does not wait for that
}

// TakeNotifier reads the variables of systemd and removes them from the environment, so that
// nothing that is started here speaks for this process.
func TakeNotifier() Notifier {
	n := Notifier{socket: os.Getenv(envNotify)}
	if pid := os.Getenv(envWatchdogPID); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseUint(os.Getenv(envWatchdog), 10, 48); err == nil {
			n.every = time.Duration(usec) * time.Microsecond / 2
		}
	}
	for _, name := range []string{envNotify, envWatchdog, envWatchdogPID} {
		_ = os.Unsetenv(name)
	}
	return n
}

// During runs fn and tells systemd meanwhile: that the process is ready, once ready returns nil;
// that it is stopping, when ctx or fn ends; and until fn has ended that it is alive. It is alive as
// long as its goroutines run, as at /healthz: one without its broker is not to be started anew,
// because the workers of an agent train on without.
func (n Notifier) During(ctx context.Context, log *slog.Logger, ready func() error, fn func(context.Context) error) error {
	if n.socket == "" {
		return fn(ctx)
	}
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { n.tell(ctx.Done(), ended, log, ready) })
	defer telling.Wait()
	defer close(ended)
	return fn(ctx)
}

func (n Notifier) tell(stopping, ended <-chan struct{}, log *slog.Logger, ready func() error) {
	asks := time.NewTicker(askEvery)
	defer asks.Stop()
	var beats <-chan time.Time
	if n.every > 0 {
		t := time.NewTicker(n.every)
		defer t.Stop()
		beats = t.C
	}
	failed := ""
	say := func(state string) (said bool) {
		err := n.send(state)
		if err != nil && err.Error() != failed {
			failed = err.Error()
			log.Warn("systemd is not told how this process is", "reason", failed)
		}
		return err == nil
	}
	for {
		select {
		case <-asks.C:
			if ready() == nil && say(notifyReady) {
				asks.Stop()
			}
		case <-beats:
			say(notifyAlive)
		case <-stopping:
			stopping = nil
			asks.Stop()
			say(notifyStopping)
		case <-ended:
			if stopping != nil {
				say(notifyStopping)
			}
			return
		}
	}
}

// send sends one message to systemd.
func (n Notifier) send(state string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		err = c.SetWriteDeadline(time.Now().Add(notifyWithin))
		if err == nil {
			_, err = c.Write([]byte(state))
		}
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return errcode.Errorf(errcode.Unavailable, "%s: %w", envNotify, err)
	}
	return nil
}
