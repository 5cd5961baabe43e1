package collective

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// TestACallThatCloseOvertakesEnds: an operation has acquired the engine, and is not scheduled until
// Close has told all goroutines to end. The one that sends for it may be gone by then.
func TestACallThatCloseOvertakesEnds(t *testing.T) {
	for range 20 {
		comms := group(t, fabrics()[1], 2, func(o *Options) { o.InlineBytes = -1 })
		mustAll(t, 2, func(r int) error { return loop(soon(t), comms[r], 1, 10) })
		c := comms[0]
		if err := c.engine.Acquire(soon(t)); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		<-c.session.Context().Done()
		done := make(chan error, 1)
		go func() {
			buf := make([]float32, 10)
			d := frame.Descriptor{Method: frame.Allreduce, Type: Of(buf).Type}
			err := c.engine.Execute(context.Background(), d, nil, Of(buf).Data, nil)
			c.engine.Release()
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("the operation hangs")
		}
		<-closed
	}
}
