package collective

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// deaf is a transport that can make no connection to one address, as across a link that drops
// everything.
type deaf struct {
	Transport
	to string
}

func (d deaf) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr != d.to {
		return d.Transport.Dial(ctx, addr)
	}
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
}

func TestAGenerationThatCannotBeBuiltNamesBothEndsOfTheLink(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world, from, to = 4, 3, 0
		eps := make([]*Endpoint, world)
		target := f.listen(t, to)
		for i := range eps {
			switch i {
			case to:
				eps[i] = NewEndpoint(target)
			case from:
				eps[i] = NewEndpoint(deaf{f.listen(t, i), target.Addr()})
			default:
				eps[i] = NewEndpoint(f.listen(t, i))
			}
			t.Cleanup(func() { _ = eps[i].Close() })
		}
		ctx, stall := soon(t), 400*time.Millisecond
		errs := each(world, func(rank int) error {
			o := options(eps, 1, rank)
			o.StallAfter = stall
			c, err := New(ctx, o)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			return c.Barrier(ctx)
		})
		for rank, err := range errs {
			wantLost(t, rank, err, to)
			var lost *PeerLostError
			if errors.As(err, &lost) && (!lost.Witnessed || lost.Witness != from) {
				t.Errorf("rank %d: %v, witnessed by %d (%t); want rank %d", rank, err, lost.Witness, lost.Witnessed, from)
			}
		}
		if !errors.Is(errs[from], ErrUnreachable) {
			t.Error(errs[from])
		}
	})
}

func TestAnAbortHasNoWitness(t *testing.T) {
	comms := group(t, fabrics()[0], 3, nil)
	comms[0].Abort(&PeerLostError{Rank: 1, Cause: errors.New("its agent says so")})
	for rank, err := range each(3, func(rank int) error { return comms[rank].Barrier(soon(t)) }) {
		var lost *PeerLostError
		if !errors.As(err, &lost) || lost.Witnessed {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
