package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
)

// big is the number of elements of the test state: several pieces.
const big = 5 * leafBytes / 8

// crew is a few members that sync their states without agents.
type crew struct {
	t         *testing.T
	network   *inproc.Network
	endpoints []*collective.Endpoint
	states    []*State
	tensors   [][]int64
	onWrite   func(member, bytes int) // sees every write of a member
}

// tapped is a transport whose connections report what is written.
type tapped struct {
	*inproc.Listener
	wrote func(bytes int)
}

type tappedConn struct {
	net.Conn
	wrote func(bytes int)
}

func (l tapped) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := l.Listener.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return tappedConn{c, l.wrote}, nil
}

func (c tappedConn) Write(p []byte) (int, error) {
	c.wrote(len(p))
	return c.Conn.Write(p)
}

func newCrew(t *testing.T, n int) *crew {
	c := &crew{t: t, network: inproc.NewNetwork(), onWrite: func(int, int) {}}
	for i := range n {
		l, err := c.network.Listen(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		e := collective.NewEndpoint(tapped{l, func(bytes int) { c.onWrite(i, bytes) }})
		t.Cleanup(func() { _ = e.Close() })
		s, tensor := NewState(nil), make([]int64, big)
		for k := range tensor {
			tensor[k] = int64(i*big + k)
		}
		Tensor(s, "tensor", tensor)
		c.endpoints, c.states, c.tensors = append(c.endpoints, e), append(c.states, s), append(c.tensors, tensor)
	}
	return c
}

// commit gives a member a commit with content of its own.
func (c *crew) commit(i int, generation, step uint64, content int64) {
	c.tensors[i][1], c.states[i].step = content, step
	if err := c.states[i].save(generation); err != nil {
		c.t.Fatal(err)
	}
}

// sync runs one generation of some members, ranked in the given order, and returns their results.
func (c *crew) sync(generation uint64, members ...int) (received []uint64, errs []error) {
	received, errs = make([]uint64, len(members)), make([]error, len(members))
	var wait sync.WaitGroup
	for rank, i := range members {
		wait.Go(func() {
			ctx, cancel := context.WithTimeoutCause(context.Background(), hangs, errors.New("the test hangs"))
			defer cancel()
			comm, err := collective.New(ctx, collective.Options{
				Job: "j", Generation: generation, Rank: rank, World: len(members),
				Endpoint: c.endpoints[i],
				Peers:    func(_ context.Context, r int) (string, error) { return fmt.Sprint(members[r]), nil },
			})
			if err != nil {
				errs[rank] = err
				return
			}
			received[rank], errs[rank] = c.states[i].sync(ctx, comm, generation)
			_ = comm.Close()
			if errs[rank] != nil { // as a worker does before it joins again
				errs[rank] = errors.Join(errs[rank], c.states[i].Restore())
			}
		})
	}
	wait.Wait()
	return received, errs
}

func (c *crew) mustSync(generation uint64, members ...int) []uint64 {
	c.t.Helper()
	received, errs := c.sync(generation, members...)
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
	for _, i := range members {
		if !slices.Equal(c.tensors[i], c.tensors[members[0]]) {
			c.t.Errorf("members %d and %d differ after a sync", i, members[0])
		}
	}
	return received
}

func TestStartIsRankZeros(t *testing.T) {
	c := newCrew(t, 4)
	c.mustSync(1, 2, 0, 1, 3)
	if got := c.tensors[0][0]; got != 2*big {
		t.Errorf("the start is %d, want that of rank 0, %d", got, 2*big)
	}
	for _, s := range c.states {
		if k := s.Committed(); k.Generation != 1 || k.Step != 0 || k.Hash == "" {
			t.Errorf("commit %+v, want (1, 0) with a hash", k)
		}
	}
}

func TestNewestWinsAndOnlyThoseThatLackItReceive(t *testing.T) {
	c := newCrew(t, 5)
	c.commit(1, 2, 30, 77)
	for _, i := range []int{0, 2} {
		copy(c.tensors[i], c.tensors[1])
		c.commit(i, 3, 10, 88)
	}
	c.commit(3, 3, 5, 99)
	received := c.mustSync(4, 0, 1, 2, 3, 4)
	for rank, want := range []bool{false, true, false, true, true} {
		if got := received[rank] > 0; got != want {
			t.Errorf("rank %d received %d bytes", rank, received[rank])
		}
	}
	if c.tensors[4][1] != 88 || c.states[4].Step() != 10 {
		t.Errorf("the newcomer has %d at step %d", c.tensors[4][1], c.states[4].Step())
	}
}

func TestSameNameOtherHashIsSettled(t *testing.T) {
	c := newCrew(t, 3)
	for i := range 3 {
		c.commit(i, 1, 10, int64(i))
	}
	c.mustSync(2, 0, 1, 2)
}

// TestHolderDiesDuringSync kills the holder of the newest commit while it sends. The next one takes its place, and who
// was receiving still holds its own commit.
func TestHolderDiesDuringSync(t *testing.T) {
	c := newCrew(t, 3)
	c.commit(0, 2, 20, 20)
	c.commit(1, 2, 10, 10)
	c.commit(2, 1, 5, 5)
	var sent atomic.Int64
	c.onWrite = func(member, bytes int) {
		if member == 0 && sent.Add(int64(bytes)) > 2*leafBytes+leafBytes/2 {
			c.network.Kill("0")
		}
	}
	_, errs := c.sync(3, 0, 1, 2)
	for rank := 1; rank < 3; rank++ {
		if !errors.Is(errs[rank], ErrPeerLost) {
			t.Fatalf("rank %d: %v, want a lost peer", rank, errs[rank])
		}
	}
	for i, want := range []uint64{20, 10, 5} {
		if got := c.states[i].Committed().Step; got != want {
			t.Errorf("member %d holds commit %d after the failed sync, want %d", i, got, want)
		}
	}
	c.mustSync(4, 1, 2)
	if c.tensors[2][1] != 10 || c.states[2].Step() != 10 {
		t.Errorf("the survivors agree on %d at step %d, want the next newest, 10", c.tensors[2][1], c.states[2].Step())
	}
}

func TestCorruptStateIsNotTaken(t *testing.T) {
	c := newCrew(t, 2)
	c.commit(0, 2, 20, 20)
	c.commit(1, 2, 10, 10)
	c.states[0].held.digest()
	c.states[0].held.data[3*leafBytes] ^= 1 // a broken memory cell
	_, errs := c.sync(3, 0, 1)
	if !errors.Is(errs[1], ErrPeerLost) || !strings.Contains(errs[1].Error(), "hash") {
		t.Errorf("error %v, want one about the hash", errs[1])
	}
	if got := c.states[1].Committed().Step; got != 10 {
		t.Errorf("the receiver holds commit %d, want its own", got)
	}
}

// TestAReturningMemberWithACommitOfARolledBackBranch: it was cut off with commit (2, 30) when the others went back to
// (2, 10) and committed (3, 12). Its higher step is of a branch that nobody follows: it gets the newer generation's.
func TestAReturningMemberWithACommitOfARolledBackBranch(t *testing.T) {
	c := newCrew(t, 3)
	c.commit(2, 2, 30, 300)
	for i := range 2 {
		copy(c.tensors[i], c.tensors[2])
		c.commit(i, 3, 12, 120)
	}
	received := c.mustSync(4, 2, 0, 1)
	if c.tensors[2][1] != 120 || c.states[2].Step() != 12 {
		t.Errorf("the returning member has %d at step %d, want 120 at 12", c.tensors[2][1], c.states[2].Step())
	}
	if received[0] == 0 || received[0] >= 2*leafBytes {
		t.Errorf("it received %d bytes; only one leaf of its commit is different", received[0])
	}
	for i := range c.states {
		if k := c.states[i].Committed(); k.Generation != 3 || k.Step != 12 {
			t.Errorf("member %d holds %+v", i, k)
		}
	}
}

// TestOnlyWhatDiffersIsSent: leaves that a member has already, from a commit or from its own start, do not travel.
func TestOnlyWhatDiffersIsSent(t *testing.T) {
	c := newCrew(t, 2)
	c.commit(0, 1, 10, 5)
	copy(c.tensors[1], c.tensors[0]) // what it would start from: the same, like weights read from a file,
	c.tensors[1][1] = 6              // but for the first leaf
	if got := c.mustSync(2, 0, 1)[1]; got == 0 || got >= 2*leafBytes {
		t.Errorf("received %d bytes, want a little more than one leaf", got)
	}
	if c.tensors[1][1] != 5 {
		t.Errorf("the tensor has %d", c.tensors[1][1])
	}
}

// TestTheLastHolderDiesInTheMiddleOfTheSync, and again in the next one: each time the next newest is taken, and nobody has
// a mixture.
func TestTheLastHolderDiesInTheMiddleOfTheSync(t *testing.T) {
	c := newCrew(t, 4)
	for i := range 3 {
		c.commit(i, 2, uint64(30-10*i), int64(30-10*i))
	}
	var sent [4]atomic.Int64
	c.onWrite = func(member, bytes int) {
		if member < 2 && sent[member].Add(int64(bytes)) > 2*leafBytes {
			c.network.Kill(fmt.Sprint(member))
		}
	}
	for dead := range 2 {
		members := []int{0, 1, 2, 3}[dead:]
		sent[1].Store(0)
		_, errs := c.sync(uint64(3+dead), members...)
		for rank := 1; rank < len(members); rank++ {
			if !errors.Is(errs[rank], ErrPeerLost) {
				t.Fatalf("sync %d, member %d: %v", dead, members[rank], errs[rank])
			}
		}
	}
	c.mustSync(5, 2, 3)
	if c.tensors[3][1] != 10 || c.states[3].Step() != 10 {
		t.Errorf("the last two agree on %d at step %d, want the third newest, 10", c.tensors[3][1], c.states[3].Step())
	}
}
