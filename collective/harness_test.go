package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/collective/tcp"
)

// fabric makes end points that can reach one another. kill breaks one as SIGKILL
// would, where the transport can do that.
type fabric struct {
	name   string
	listen func(t testing.TB, i int) Transport
}

// oneMachine is a transport whose ranks share memory.
type oneMachine struct{ Transport }

func shares(t Transport) bool {
	switch t := t.(type) {
	case oneMachine:
		return true
	case *rig:
		return shares(t.Transport)
	case deaf:
		return shares(t.Transport)
	}
	return false
}

func fabrics() []fabric {
	network := inproc.NewNetwork()
	return []fabric{
		{"inproc", func(t testing.TB, i int) Transport {
			l, err := network.Listen(fmt.Sprintf("%s-%d", t.Name(), i))
			if err != nil {
				t.Fatal(err)
			}
			return l
		}},
		{"tcp", func(t testing.TB, _ int) Transport { return listenTCP(t) }},
		{"shm", func(t testing.TB, _ int) Transport { return oneMachine{listenTCP(t)} }},
	}
}

func listenTCP(t testing.TB) Transport {
	t.Helper()
	l, err := tcp.Listen(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func onEachFabric(t *testing.T, run func(t *testing.T, f fabric)) {
	for _, f := range fabrics() {
		t.Run(f.name, func(t *testing.T) { run(t, f) })
	}
}

// patience limits every wait of the tests. It is far more than needed, so that it only ends what
// hangs.
const patience = 60 * time.Second

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("the test hangs"))
	t.Cleanup(cancel)
	return ctx
}

func endpoints(t testing.TB, f fabric, n int) []*Endpoint {
	t.Helper()
	var all []*Endpoint
	for i := range n {
		e := NewEndpoint(f.listen(t, i))
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	return all
}

func options(eps []*Endpoint, generation uint64, rank int) Options {
	o := Options{
		Job: "job", Token: "secret", Generation: generation, Rank: rank, World: len(eps), Endpoint: eps[rank],
		Peers: func(ctx context.Context, rank int) (string, error) {
			if rank >= len(eps) { // in a generation that is larger than the test has endpoints
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return eps[rank].Addr(), nil
		},
	}
	if shares(eps[0].acceptor.Transport()) {
		o.LocalRank, o.LocalSize = rank, len(eps)
	}
	return o
}

// form makes one communicator per endpoint.
func form(t testing.TB, eps []*Endpoint, generation uint64, change func(*Options)) []*Communicator {
	t.Helper()
	comms := make([]*Communicator, len(eps))
	errs := each(len(eps), func(rank int) (err error) {
		o := options(eps, generation, rank)
		if change != nil {
			change(&o)
		}
		comms[rank], err = New(soon(t), o)
		return err
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(errors.Join(errs...))
		}
	}
	return comms
}

func closeAll(comms []*Communicator) {
	each(len(comms), func(i int) error { return comms[i].Close() })
}

// group is a ring ready for use, closed at the end of the test.
func group(t testing.TB, f fabric, world int, change func(*Options)) []*Communicator {
	t.Helper()
	comms := form(t, endpoints(t, f, world), 1, change)
	t.Cleanup(func() { closeAll(comms) })
	return comms
}

// each runs do for every rank at once and returns their errors.
func each(n int, do func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errs
}

func mustAll(t testing.TB, n int, do func(rank int) error) {
	t.Helper()
	if err := errors.Join(each(n, do)...); err != nil {
		t.Fatal(err)
	}
}

// wantLost checks that err names rank.
func wantLost(t testing.TB, who int, err error, rank int) {
	t.Helper()
	var lost *PeerLostError
	if !errors.As(err, &lost) || !errors.Is(err, ErrPeerLost) || lost.Rank != rank {
		t.Errorf("rank %d: %v; want rank %d lost", who, err, rank)
	}
}

// eventually waits for a condition. It polls: what tests wait for is state of several goroutines,
// of which none announces that it has changed.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// ReduceScatter, Reduce and Alltoall are the operations on slices.

func ReduceScatter[T Number](ctx context.Context, c *Communicator, buf []T, op Op) error {
	return c.ReduceScatter(ctx, Of(buf), op)
}

func Reduce[T Number](ctx context.Context, c *Communicator, buf []T, op Op, root int) error {
	return c.Reduce(ctx, Of(buf), op, root)
}

func Alltoall[T Number](ctx context.Context, c *Communicator, send, recv []T, counts, from []int) error {
	return c.Alltoall(ctx, Of(send), Of(recv), counts, from)
}
