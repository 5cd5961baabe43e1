package exec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/shm"
)

// localConn is a connection of another rank of this machine, over which their group forms.
type localConn struct {
	rank int
	conn net.Conn
}

// localGroup carries out operations among the ranks of this machine, through shared memory.
type localGroup struct {
	session *control.Session
	op      *opContext
	cfg     *Config
	first   int // rank of the machine's first rank

	mu       sync.Mutex
	group    *shm.Group // nil = none; set under mu while the generation forms
	disabled error      // why there is none

	arrivals   chan localConn        // of the other ranks of this machine
	dialed     chan net.Conn         // to the first of them, see dial; nil = it was not begun
	descriptor [frame.HeaderLen]byte // of the running operation, which the members compare
	scaled     []int                 // scratch
}

func (g *localGroup) contains(rank int) bool {
	return rank >= g.first && rank < g.first+g.cfg.LocalSize
}

// spans reports whether all ranks of the world are in the group.
func (g *localGroup) spans(world int) bool { return g.group != nil && g.group.Size() == world }

// canRead reports whether a rank and this one can read each other's memory.
func (g *localGroup) canRead(rank int) bool {
	return g.group != nil && g.group.Readable() && g.contains(rank)
}

func (g *localGroup) read(rank int, address uint64, dst []byte) error {
	return g.group.Read(rank-g.first, address, dst)
}

func (g *localGroup) admit(from int) (refusal string) {
	if !g.contains(from) {
		return fmt.Sprintf("rank %d is not on the machine of rank %d", from, g.cfg.Rank)
	}
	return ""
}

func (g *localGroup) adopt(from int, conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.session.Usable() != nil {
		_ = conn.Close()
		return
	}
	g.arrivals <- localConn{from, conn} // has room for all that are admitted
}

// dial begins to dial the first rank of this machine, so that this takes no time when the
// neighbours are connected and the group forms. What goes wrong is found, and reported, by connect.
// The caller must call stop when the group has formed, or will not.
func (g *localGroup) dial(ctx context.Context) (stop func()) {
	if g.unavailable() != nil || g.cfg.LocalRank == 0 {
		return func() {}
	}
	dialing, cancel := context.WithCancel(ctx)
	g.dialed = make(chan net.Conn, 1)
	g.session.Go(func() {
		defer close(g.dialed)
		if conn, err := g.session.Open(dialing, g.first, control.PurposeLocal, 0); err == nil {
			g.dialed <- conn
		}
	})
	return func() {
		cancel()
		for conn := range g.dialed {
			_ = conn.Close()
		}
	}
}

// form forms the group. It is no error that the ranks cannot share memory.
func (g *localGroup) form(ctx context.Context) error {
	if g.disabled = g.unavailable(); g.disabled != nil {
		return nil
	}
	s := g.session
	forming, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Context(), cancel)()
	arena, err := g.cfg.Arena()
	if err != nil {
		arena = nil // then it is only slower
	}
	group, conns, err := g.connect(forming, arena)
	// Closed only when a failure is recorded: a peer that sees the end asks this rank for the
	// reason.
	defer closeAll(conns)
	failure, over := s.Failed(), ctx.Err() != nil
	if (failure != nil || over) && group != nil { // it has formed in the same moment
		group.Close()
	}
	var lost *shm.MemberError
	switch {
	case failure != nil:
		return failure
	case errors.Is(err, shm.ErrUnavailable):
		g.disabled = err
		return nil
	case over:
		s.Abort(context.Cause(ctx))
		return s.Failed()
	case errors.As(err, &lost):
		return s.FailConn(g.first+lost.Member, lost.Err)
	case err != nil:
		s.Abort(err)
		return s.Failed()
	}
	group.OnSleep = g.op.watch
	g.mu.Lock()
	g.group = group
	g.mu.Unlock()
	for member := range g.cfg.LocalSize {
		if s.HasLeft(g.first + member) { // before there was a group to mark
			group.MarkLeft(member)
		}
	}
	if s.Context().Err() != nil {
		group.Abort()
		return s.Ended()
	}
	return nil
}

// unavailable returns why the ranks of this machine are not to share memory, or nil.
func (g *localGroup) unavailable() error {
	switch {
	case g.cfg.NoSharedMemory:
		return errors.New("shared memory is switched off")
	case g.cfg.LocalSize < 2:
		return errors.New("no other rank of this machine is known")
	case g.cfg.LocalSize > shm.MaxMembers:
		return fmt.Errorf("%d ranks on this machine, at most %d share memory", g.cfg.LocalSize, shm.MaxMembers)
	}
	return nil
}

// connect returns the group, and the connections that formed it.
func (g *localGroup) connect(ctx context.Context, arena *shm.Arena) (*shm.Group, []net.Conn, error) {
	if g.cfg.LocalRank > 0 {
		var conn net.Conn
		if g.dialed != nil {
			conn = <-g.dialed
		}
		if conn == nil {
			var err error
			if conn, err = g.session.Open(ctx, g.first, control.PurposeLocal, 0); err != nil {
				return nil, nil, &shm.MemberError{Member: 0, Err: err}
			}
		}
		group, err := shm.Join(ctx, g.cfg.LocalRank, g.cfg.LocalSize, conn, arena, g.cfg.Mappings)
		return group, []net.Conn{conn}, err
	}
	conns := make([]net.Conn, g.cfg.LocalSize-1)
	for range conns {
		select {
		case c := <-g.arrivals:
			conns[c.rank-g.first-1] = c.conn
		case <-ctx.Done():
			return nil, conns, context.Cause(ctx)
		}
	}
	group, err := shm.Lead(ctx, conns, arena, g.cfg.Mappings)
	return group, conns, err
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

func (g *localGroup) interrupt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.group != nil {
		g.group.Abort()
	}
}

func (g *localGroup) peerLeft(rank int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.group != nil && g.contains(rank) {
		g.group.MarkLeft(rank - g.first)
	}
}

func (g *localGroup) waitTime() (sum time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.group != nil {
		for q := range g.group.Size() {
			sum += g.group.WaitTime(q)
		}
	}
	return sum
}

// close closes the group, and connections that came too late to form one.
func (g *localGroup) close() {
	for len(g.arrivals) > 0 {
		_ = (<-g.arrivals).conn.Close()
	}
	if g.group != nil {
		g.group.Close()
	}
}

// run carries out an operation of a group that spans the world.
func (g *localGroup) run(d frame.Descriptor, data []byte, offsets []int) error {
	switch d.Method {
	case frame.Barrier:
		return g.check(d, g.group.Barrier(g.descriptor))
	case frame.Broadcast:
		return g.check(d, g.group.Broadcast(g.descriptor, data, int(d.Root)))
	case frame.Allgather:
		return g.check(d, g.group.Allgather(g.descriptor, data, g.inBytes(offsets, d.Type.Size())))
	case frame.Reduce:
		return g.check(d, g.group.Reduce(g.reduction(d), data, int(d.Root)))
	case frame.ReduceScatter:
		return g.check(d, g.group.ReduceScatter(g.reduction(d), data))
	}
	return g.check(d, g.group.Allreduce(g.reduction(d), data))
}

func (g *localGroup) reduction(d frame.Descriptor) shm.Reduction {
	r := shm.Reduction{Descriptor: g.descriptor, Type: d.Type, Op: d.Reduce.Kernel()}
	if d.Reduce == frame.Average {
		r.Divisor = g.cfg.World
	}
	return r
}

func (g *localGroup) inBytes(offsets []int, size int) []int {
	g.scaled = g.scaled[:0]
	for _, o := range offsets {
		g.scaled = append(g.scaled, o*size)
	}
	return g.scaled
}

// check turns an error of the group into the session's failure.
func (g *localGroup) check(mine frame.Descriptor, err error) error {
	if err == nil {
		return nil
	}
	s := g.session
	var other *shm.MismatchError
	var lost *shm.MemberError
	switch {
	case errors.As(err, &other):
		h, err := frame.Parse(other.Descriptor[:])
		if err != nil {
			s.Fail(s.Lost(g.first+other.Member, err))
			break
		}
		if h.Op == mine { // the blocks of an all-to-all differ
			size := mine.Type.Size()
			mine.Count, h.Op.Count = uint64(other.Expected/size), uint64(other.Sent/size)
		}
		s.Diverged(g.first+other.Member, mine.String(), h.Op.String())
	case errors.As(err, &lost):
		s.Blame(g.first+lost.Member, lost.Err)
	case !errors.Is(err, shm.ErrAborted):
		s.Abort(err)
	}
	return s.Ended()
}
