package collective

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// TestTheEndOfAContextBlamesNobody: a context ends, for a reason of the caller, while an operation
// looks up the address of a peer. The peer is alive.
func TestTheEndOfAContextBlamesNobody(t *testing.T) {
	for name, use := range map[string]func(context.Context, *Communicator) error{
		"collective": func(ctx context.Context, c *Communicator) error { return c.Barrier(ctx) },
		"message":    func(ctx context.Context, c *Communicator) error { return c.Send(ctx, 1, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			var hold atomic.Bool
			asked := make(chan struct{}, 1)
			comms := group(t, fabrics()[1], 2, func(o *Options) {
				peers := o.Peers
				o.Peers = func(ctx context.Context, rank int) (string, error) {
					if o.Rank == 0 && hold.CompareAndSwap(true, false) {
						asked <- struct{}{}
						<-ctx.Done()
						return "", context.Cause(ctx)
					}
					return peers(ctx, rank)
				}
			})
			hold.Store(true)
			reason := errors.New("the caller's own")
			ctx, cancel := context.WithCancelCause(soon(t))
			go func() {
				<-asked
				cancel(reason)
			}()
			err := use(ctx, comms[0])
			var aborted *AbortedError
			if !errors.As(err, &aborted) || aborted.Rank != 0 || !errors.Is(err, reason) {
				t.Errorf("rank 0: %v", err)
			}
			if err := comms[1].Barrier(soon(t)); !errors.Is(err, ErrAborted) {
				t.Errorf("rank 1: %v", err)
			}
		})
	}
}
