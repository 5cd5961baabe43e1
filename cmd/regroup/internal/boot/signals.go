package boot

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// ErrInterrupted is the cause of a context that a signal has ended.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that the first SIGINT or SIGTERM ends. The second calls again (nil = nothing), the
// third ends the process as a shell expects of an interrupted one.
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

// IsTerminal tells whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
