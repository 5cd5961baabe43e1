package statesync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
)

// big is the number of elements of the test state: several chunks.
const big = 5 * ChunkBytes / 8

// hangs is far more time than any wait needs.
const hangs = 30 * time.Second

// testMeta is the metadata of a commit in tests: its step.
func testMeta(step uint64) []byte { return binary.LittleEndian.AppendUint64(nil, step) }

func newTestReplica() *Replica {
	return NewReplica(Config{Layout: func() Digest { return Digest{1} }})
}

func bytesOf(tensor []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tensor))), 8*len(tensor))
}

// group is a few members that sync their states without agents.
type group struct {
	t         *testing.T
	network   *inproc.Network
	endpoints []*collective.Endpoint
	replicas  []*Replica
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

func newGroup(t *testing.T, n int) *group {
	g := &group{t: t, network: inproc.NewNetwork(), onWrite: func(int, int) {}}
	for i := range n {
		l, err := g.network.Listen(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		e := collective.NewEndpoint(tapped{l, func(bytes int) { g.onWrite(i, bytes) }})
		t.Cleanup(func() { _ = e.Close() })
		r, tensor := newTestReplica(), make([]int64, big)
		for k := range tensor {
			tensor[k] = int64(i*big + k)
		}
		r.Tensors.Add("tensor", "int64", bytesOf(tensor))
		g.endpoints, g.replicas, g.tensors = append(g.endpoints, e), append(g.replicas, r), append(g.tensors, tensor)
	}
	return g
}

// commit gives a member a commit with content of its own.
func (g *group) commit(i int, generation, step uint64, content int64) {
	g.tensors[i][1] = content
	g.replicas[i].Commit(testMeta(step), generation, step)
}

// sync runs one generation of some members, ranked in the given order, and returns their results.
func (g *group) sync(generation uint64, members ...int) (received []uint64, errs []error) {
	received, errs = make([]uint64, len(members)), make([]error, len(members))
	var wait sync.WaitGroup
	for rank, i := range members {
		wait.Go(func() {
			ctx, cancel := context.WithTimeoutCause(context.Background(), hangs, errors.New("the test hangs"))
			defer cancel()
			comm, err := collective.New(ctx, collective.Options{
				Job: "j", Generation: generation, Rank: rank, World: len(members),
				Endpoint: g.endpoints[i],
				Peers:    func(_ context.Context, r int) (string, error) { return fmt.Sprint(members[r]), nil },
			})
			if err != nil {
				errs[rank] = err
				return
			}
			if g.replicas[i].Newest() == nil {
				g.replicas[i].Begin(testMeta(0), 0)
			}
			result, err := g.replicas[i].Sync(ctx, comm, generation)
			received[rank], errs[rank] = result.Received, err
			_ = comm.Close()
			if errs[rank] != nil { // as a worker does before it joins again
				g.replicas[i].Restore()
			}
		})
	}
	wait.Wait()
	return received, errs
}

func (g *group) mustSync(generation uint64, members ...int) []uint64 {
	g.t.Helper()
	received, errs := g.sync(generation, members...)
	if err := errors.Join(errs...); err != nil {
		g.t.Fatal(err)
	}
	for _, i := range members {
		if !slices.Equal(g.tensors[i], g.tensors[members[0]]) {
			g.t.Errorf("members %d and %d differ after a sync", i, members[0])
		}
	}
	return received
}

func TestStartIsRankZeros(t *testing.T) {
	g := newGroup(t, 4)
	g.mustSync(1, 2, 0, 1, 3)
	if got := g.tensors[0][0]; got != 2*big {
		t.Errorf("the start is %d, want that of rank 0, %d", got, 2*big)
	}
	for _, r := range g.replicas {
		if generation, step, digest, _ := r.Committed(); generation != 1 || step != 0 || digest == "" {
			t.Errorf("commit (%d, %d) %q, want (1, 0) with a digest", generation, step, digest)
		}
	}
}

func TestNewestWinsAndOnlyThoseThatLackItReceive(t *testing.T) {
	g := newGroup(t, 5)
	g.commit(1, 2, 30, 77)
	for _, i := range []int{0, 2} {
		copy(g.tensors[i], g.tensors[1])
		g.commit(i, 3, 10, 88)
	}
	g.commit(3, 3, 5, 99)
	received := g.mustSync(4, 0, 1, 2, 3, 4)
	for rank, want := range []bool{false, true, false, true, true} {
		if got := received[rank] > 0; got != want {
			t.Errorf("rank %d received %d bytes", rank, received[rank])
		}
	}
	if g.tensors[4][1] != 88 || g.replicas[4].Newest().Step() != 10 {
		t.Errorf("the newcomer has %d at step %d", g.tensors[4][1], g.replicas[4].Newest().Step())
	}
}

func TestSameNameOtherHashIsSettled(t *testing.T) {
	g := newGroup(t, 3)
	for i := range 3 {
		g.commit(i, 1, 10, int64(i))
	}
	g.mustSync(2, 0, 1, 2)
}

// TestHolderDiesDuringSync kills the holder of the newest commit while it sends. The next one takes
// its place, and who was receiving still holds its own commit.
func TestHolderDiesDuringSync(t *testing.T) {
	g := newGroup(t, 3)
	g.commit(0, 2, 20, 20)
	g.commit(1, 2, 10, 10)
	g.commit(2, 1, 5, 5)
	var sent atomic.Int64
	g.onWrite = func(member, bytes int) {
		if member == 0 && sent.Add(int64(bytes)) > 2*ChunkBytes+ChunkBytes/2 {
			g.network.Kill("0")
		}
	}
	_, errs := g.sync(3, 0, 1, 2)
	for rank := 1; rank < 3; rank++ {
		if !errors.Is(errs[rank], collective.ErrPeerLost) {
			t.Fatalf("rank %d: %v, want a lost peer", rank, errs[rank])
		}
	}
	for i, want := range []uint64{20, 10, 5} {
		if _, got, _, _ := g.replicas[i].Committed(); got != want {
			t.Errorf("member %d holds commit %d after the failed sync, want %d", i, got, want)
		}
	}
	g.mustSync(4, 1, 2)
	if g.tensors[2][1] != 10 || g.replicas[2].Newest().Step() != 10 {
		t.Errorf("the survivors agree on %d at step %d, want the next newest, 10", g.tensors[2][1], g.replicas[2].Newest().Step())
	}
}

func TestCorruptStateIsNotTaken(t *testing.T) {
	g := newGroup(t, 2)
	g.commit(0, 2, 20, 20)
	g.commit(1, 2, 10, 10)
	g.replicas[0].Newest().Digest()
	g.replicas[0].newest.data[3*ChunkBytes] ^= 1 // a broken memory cell
	_, errs := g.sync(3, 0, 1)
	if !errors.Is(errs[1], collective.ErrPeerLost) || !strings.Contains(errs[1].Error(), "hash") {
		t.Errorf("error %v, want one about the hash", errs[1])
	}
	if _, got, _, _ := g.replicas[1].Committed(); got != 10 {
		t.Errorf("the receiver holds commit %d, want its own", got)
	}
}

// TestAReturningMemberWithACommitOfARolledBackBranch: it was cut off with commit (2, 30) when the
// others went back to (2, 10) and committed (3, 12). Its higher step is of a branch that nobody
// follows: it gets the newer generation's.
func TestAReturningMemberWithACommitOfARolledBackBranch(t *testing.T) {
	g := newGroup(t, 3)
	g.commit(2, 2, 30, 300)
	for i := range 2 {
		copy(g.tensors[i], g.tensors[2])
		g.commit(i, 3, 12, 120)
	}
	received := g.mustSync(4, 2, 0, 1)
	if g.tensors[2][1] != 120 || g.replicas[2].Newest().Step() != 12 {
		t.Errorf("the returning member has %d at step %d, want 120 at 12", g.tensors[2][1], g.replicas[2].Newest().Step())
	}
	if received[0] == 0 || received[0] >= 2*ChunkBytes {
		t.Errorf("it received %d bytes; only one chunk of its commit is different", received[0])
	}
	for i, r := range g.replicas {
		if generation, step, _, _ := r.Committed(); generation != 3 || step != 12 {
			t.Errorf("member %d has commit (%d, %d)", i, generation, step)
		}
	}
}

// TestOnlyWhatDiffersIsSent: chunks that a member has already, from a commit or from its own start,
// do not travel.
func TestOnlyWhatDiffersIsSent(t *testing.T) {
	g := newGroup(t, 2)
	g.commit(0, 1, 10, 5)
	copy(g.tensors[1], g.tensors[0]) // its initial state: the same, like weights from a file,
	g.tensors[1][1] = 6              // but for the first chunk
	if got := g.mustSync(2, 0, 1)[1]; got == 0 || got >= 2*ChunkBytes {
		t.Errorf("received %d bytes, want a little more than one chunk", got)
	}
	if g.tensors[1][1] != 5 {
		t.Errorf("the tensor has %d", g.tensors[1][1])
	}
}

// TestTheLastHolderDiesInTheMiddleOfTheSync, and again in the next one: each time the next newest
// is taken, and nobody has a mixture.
func TestTheLastHolderDiesInTheMiddleOfTheSync(t *testing.T) {
	g := newGroup(t, 4)
	for i := range 3 {
		g.commit(i, 2, uint64(30-10*i), int64(30-10*i))
	}
	var sent [4]atomic.Int64
	g.onWrite = func(member, bytes int) {
		if member < 2 && sent[member].Add(int64(bytes)) > 2*ChunkBytes {
			g.network.Kill(fmt.Sprint(member))
		}
	}
	for dead := range 2 {
		members := []int{0, 1, 2, 3}[dead:]
		sent[1].Store(0)
		_, errs := g.sync(uint64(3+dead), members...)
		for rank := 1; rank < len(members); rank++ {
			if !errors.Is(errs[rank], collective.ErrPeerLost) {
				t.Fatalf("sync %d, member %d: %v", dead, members[rank], errs[rank])
			}
		}
	}
	g.mustSync(5, 2, 3)
	if g.tensors[3][1] != 10 || g.replicas[3].Newest().Step() != 10 {
		t.Errorf("the last two agree on %d at step %d, want the third newest, 10", g.tensors[3][1], g.replicas[3].Newest().Step())
	}
}
