package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ErrInterrupted is the cause of a context that a signal has cancelled.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that the first SIGINT or SIGTERM cancels. The second calls again
// (which may be nil), the third exits with code 130.
func Interruptible(parent context.Context, again func()) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 1; ; n++ {
			select {
			case <-ch:
				switch n {
				case 1:
					cancel(ErrInterrupted)
				case 2:
					if again != nil {
						again()
					}
				default:
					os.Exit(130)
				}
			case <-stopped:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(stopped)
		<-ended
		cancel(nil)
	}
}

// WritesFail makes writes to a pipe without a reader fail with EPIPE, also on stdout and stderr,
// where SIGPIPE would end the process. Child processes keep the default behaviour. The result
// restores it.
func WritesFail() func() {
	ch := make(chan os.Signal, 1) // never read
	signal.Notify(ch, syscall.SIGPIPE)
	return func() { signal.Stop(ch) }
}

// OnSignal calls do for each signal with the name, like SIGUSR1, until off is called.
func OnSignal(name string, do func()) (off func(), err error) {
	sig := unix.SignalNum(name)
	switch sig {
	case 0:
		return nil, fmt.Errorf("%q is no signal: write SIGUSR1, SIGUSR2, SIGHUP or another", name)
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGURG: // SIGURG is used by the Go runtime
		return nil, fmt.Errorf("%s has another meaning already: take SIGUSR1, SIGUSR2 or SIGHUP", name)
	}
	ch, stopped, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(ch, sig)
	go func() {
		defer close(ended)
		for {
			select {
			case <-ch:
				do()
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		signal.Stop(ch)
		close(stopped)
		<-ended
	}, nil
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
