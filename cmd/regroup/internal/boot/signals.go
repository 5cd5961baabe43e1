package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ErrInterrupted is the cause of a context that a signal has cancelled.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that the first SIGINT or SIGTERM cancels. The second calls again
// (which may be nil), the third exits with code 130.
func Interruptible(parent context.Context, again func()) (context.Context, func()) {
	return InterruptibleBy(parent, again, os.Interrupt, syscall.SIGTERM)
}

// InterruptibleBy is Interruptible with other signals.
func InterruptibleBy(parent context.Context, again func(), signals ...os.Signal) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	count := 0
	off := listen(func() {
		switch count++; count {
		case 1:
			cancel(ErrInterrupted)
		case 2:
			if again != nil {
				again()
			}
		default:
			os.Exit(130)
		}
	}, signals...)
	return ctx, func() {
		off()
		cancel(nil)
	}
}

// listen calls do for each of the signals, until off is called.
func listen(do func(), signals ...os.Signal) (off func()) {
	ch, stopped := make(chan os.Signal, 4), make(chan struct{})
	signal.Notify(ch, signals...)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ch:
				do()
			case <-stopped:
				return
			}
		}
	})
	return func() {
		signal.Stop(ch)
		close(stopped)
		running.Wait()
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
	return listen(do, sig), nil
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
