package collective

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// TestACallThatCloseOvertakesEnds: an operation has its turn, and is not run by the system until
// Close has told all goroutines to end. The one that sends for it may be gone by then.
func TestACallThatCloseOvertakesEnds(t *testing.T) {
	for range 20 {
		comms := group(t, fabrics()[1], 2, func(o *Options) { o.InlineBytes = -1 })
		mustAll(t, 2, func(r int) error { return loop(soon(t), comms[r], 1, 10) })
		c := comms[0]
		if err := c.take(soon(t)); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		<-c.quit
		done := make(chan error, 1)
		go func() {
			buf := make([]float32, 10)
			err := c.carryOut(context.Background(), call{method: allreduce, dtype: Of(buf).Type}, Of(buf), Of(buf), nil)
			c.endTurn()
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the operation hangs")
		}
		<-closed
	}
}

// TestAConnectionThatIsMadeDuringTheFailureIsNotUsed: fail breaks all connections that it finds,
// and ends life last. Who makes one in between must see the failure, or nobody wakes it.
func TestAConnectionThatIsMadeDuringTheFailureIsNotUsed(t *testing.T) {
	for name, use := range map[string]func(context.Context, *Communicator) error{
		"wire": func(ctx context.Context, c *Communicator) error { return c.Barrier(ctx) },
		"lane": func(ctx context.Context, c *Communicator) error { return c.Send(ctx, 1, make([]byte, 64<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			var failing atomic.Pointer[Communicator]
			failure := error(&AbortedError{Rank: 0, Generation: 1, Cause: errors.New("x")})
			comms := group(t, fabrics()[1], 2, func(o *Options) {
				peers := o.Peers
				o.Peers = func(ctx context.Context, rank int) (string, error) {
					if c := failing.Load(); c != nil && o.Rank == 0 {
						c.failure.Store(&failure) // as fail does, up to the end of life
						c.interrupt()
						c.closeLanes()
					}
					return peers(ctx, rank)
				}
			})
			done := make(chan error, 1)
			failing.Store(comms[0])
			go func() { done <- use(soon(t), comms[0]) }()
			select {
			case err := <-done:
				if !errors.Is(err, failure) {
					t.Error(err)
				}
			case <-time.After(defaultStallAfter / 4):
				t.Error("it uses the connection")
			}
			comms[0].endLife(failure)
		})
	}
}
