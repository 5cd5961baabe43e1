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

// ErrInterrupted is the cause of a context that a signal has ended.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that the first SIGINT or SIGTERM ends. The second calls again
// (nil = nothing), the third ends the process as a shell expects of an interrupted one.
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

// WritesFail makes writes to a pipe that nobody reads any more fail with EPIPE, also on stdout and
// stderr, where they would end the process. Processes that are started have the system's behaviour
// all the same. The result undoes it.
func WritesFail() func() {
	ch := make(chan os.Signal, 1) // whether it is read does not matter
	signal.Notify(ch, syscall.SIGPIPE)
	return func() { signal.Stop(ch) }
}

// OnSignal calls do at each signal of a name, like SIGUSR1, until off is called.
func OnSignal(name string, do func()) (off func(), err error) {
	sig := unix.SignalNum(name)
	switch sig {
	case 0:
		return nil, fmt.Errorf("%q is no signal: write SIGUSR1, SIGUSR2, SIGHUP or another", name)
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGURG: // the last is the Go runtime's own
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

// IsTerminal tells whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
