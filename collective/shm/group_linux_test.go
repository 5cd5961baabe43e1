package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// band is the members of a group, each with an arena, all in this process. They do not
// notice: their memory is mapped several times, and read through the system.
type band struct {
	groups []*Group
	arenas []*Arena
	maps   []*MappingCache
}

func each(n int, do func(rank int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (b *band) form(ctx context.Context, n int) error {
	ours, theirs := make([]net.Conn, n-1), make([]net.Conn, n-1)
	for i := range ours {
		ours[i], theirs[i] = net.Pipe()
		defer ours[i].Close()
		defer theirs[i].Close()
	}
	b.groups = make([]*Group, n)
	return each(n, func(rank int) (err error) {
		if rank == 0 {
			b.groups[0], err = Lead(ctx, ours, b.arenas[0], b.maps[0])
			return err
		}
		b.groups[rank], err = Join(ctx, rank, n, theirs[rank-1], b.arenas[rank], b.maps[rank])
		return err
	})
}

func (b *band) close() {
	for _, g := range b.groups {
		g.Close()
	}
}

func newBand(t testing.TB, n int) *band {
	t.Helper()
	b := &band{}
	for range n {
		a, err := NewArena()
		if err != nil {
			t.Fatal(err)
		}
		m := NewMappingCache()
		t.Cleanup(func() { m.Prune(); a.Close() })
		b.arenas, b.maps = append(b.arenas, a), append(b.maps, m)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.form(ctx, n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// memories are the ways in which members can have their data.
var memories = map[string]struct {
	vm    bool
	arena func(rank int) bool
}{
	"private": {true, func(int) bool { return false }},
	"arena":   {true, func(int) bool { return true }},
	"mixed":   {true, func(rank int) bool { return rank%2 == 1 }},
	"staging": {false, func(rank int) bool { return rank%2 == 1 }},
}

func onEachMemory(t *testing.T, n int, run func(t *testing.T, b *band, alloc func(rank, bytes int) []byte)) {
	for name, m := range memories {
		t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
			b := newBand(t, n)
			for _, g := range b.groups {
				if !g.vm {
					t.Fatal("members of one process cannot read each other's memory")
				}
				g.vm = m.vm
			}
			run(t, b, func(rank, bytes int) []byte {
				if bytes == 0 || !m.arena(rank) {
					return make([]byte, bytes)
				}
				p, err := b.arenas[rank].Alloc(bytes)
				if err != nil {
					t.Error(err)
					return make([]byte, bytes)
				}
				return p
			})
		})
	}
}

func descriptor(i int) (t [DescriptorBytes]byte) {
	t[0], t[1] = byte(i), byte(i>>8)
	return t
}

func TestAGroupThatFormsAgainReusesWhatIsMapped(t *testing.T) {
	b := newBand(t, 3)
	b.close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b.arenas, b.maps = b.arenas[:2], b.maps[:2]
	b.arenas[1], b.arenas[0] = b.arenas[0], b.arenas[1]
	b.maps[1], b.maps[0] = b.maps[0], b.maps[1]
	second := b.maps[0].all[b.arenas[1].name].mem
	if err := b.form(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if &b.groups[0].peers[1].arena[0] != &second[0] {
		t.Error("an arena was mapped again")
	}
	for _, m := range b.maps {
		m.Prune()
		if len(m.all) != 1 {
			t.Errorf("%d arenas are mapped, of which one is used", len(m.all))
		}
	}
}

func TestAMemberThatCannotShareIsEverybodysReason(t *testing.T) {
	b := newBand(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ours, theirs := make([]net.Conn, 2), make([]net.Conn, 2)
	for i := range ours {
		ours[i], theirs[i] = net.Pipe()
		defer ours[i].Close()
		defer theirs[i].Close()
	}
	var got [3]error
	_ = each(3, func(rank int) error {
		switch rank {
		case 0:
			_, got[0] = Lead(ctx, ours, b.arenas[0], b.maps[0])
		case 1:
			_, got[1] = Join(ctx, 1, 3, theirs[0], b.arenas[1], b.maps[1])
		case 2: // it cannot reach the socket: as in another network namespace
			var o invitation
			got[2] = receive(theirs[1], &o)
			if got[2] == nil {
				_, got[2] = (&formation{agreement: participant{theirs[1]}}).decide(vote{Problem: "not on the same host"})
			}
		}
		return nil
	})
	for rank, err := range got {
		if !errors.Is(err, ErrUnavailable) || !bytes.Contains([]byte(err.Error()), []byte("member 2: not on the same host")) {
			t.Errorf("member %d: %v", rank, err)
		}
	}
}

func TestAMemberThatDiesWhileAGroupFormsIsNamed(t *testing.T) {
	b := newBand(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	var lost *MemberError
	if _, err := Lead(ctx, []net.Conn{ours}, b.arenas[0], b.maps[0]); !errors.As(err, &lost) || lost.Member != 1 {
		t.Fatal(err)
	}
}

// awaitAsleep waits until an operation of a member sleeps. It polls the member's flag in shared
// memory: a doorbell would wake the sleeper.
func awaitAsleep(t *testing.T, g *Group) {
	t.Helper()
	for end := time.Now().Add(patience); atomic.LoadUint32(g.word(g.rank, offAsleep)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the operation does not sleep")
		}
	}
}

func TestAbortWakesWhoeverSleeps(t *testing.T) {
	b := newBand(t, 2)
	done := make(chan error, 1)
	go func() { done <- b.groups[0].Barrier(descriptor(1)) }()
	awaitAsleep(t, b.groups[0])
	b.groups[0].Abort()
	if err := <-done; !errors.Is(err, ErrAborted) {
		t.Fatal(err)
	}
	if err := b.groups[0].Barrier(descriptor(2)); !errors.Is(err, ErrAborted) {
		t.Fatal(err)
	}
}

func TestAnotherOperationIsToldApart(t *testing.T) {
	b := newBand(t, 3)
	err := each(3, func(rank int) error { return b.groups[rank].Barrier(descriptor(rank / 2)) })
	var m *MismatchError
	if !errors.As(err, &m) {
		t.Fatal(err)
	}
}

func TestAMemberWithoutMemoryIsNamed(t *testing.T) {
	b := newBand(t, 2)
	b.groups[0].peers[1].pid = 1 << 30 // nobody
	errs := make([]error, 2)
	_ = each(2, func(rank int) error {
		buf := make([]byte, 100<<10)
		errs[rank] = b.groups[rank].Broadcast(descriptor(1), buf, 1)
		b.groups[1-rank].Abort()
		return nil
	})
	var m *MemberError
	if !errors.As(errs[0], &m) || m.Member != 1 {
		t.Fatal(errs[0])
	}
}

// TestWhoSleepsNoticesThatAProcessHasEnded: without any connection that ends, while the system
// still knows of the process.
func TestWhoSleepsNoticesThatAProcessHasEnded(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	b := newBand(t, 2)
	b.groups[0].peers[1].pid = child.Process.Pid
	done := make(chan error, 1)
	go func() { done <- b.groups[0].Barrier(descriptor(1)) }()
	awaitAsleep(t, b.groups[0])
	select {
	case err := <-done:
		t.Fatal("while it lives: ", err)
	case <-time.After(10 * checkEvery):
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var m *MemberError
	if err := <-done; !errors.As(err, &m) || m.Member != 1 || !errors.Is(err, ErrDead) {
		t.Fatal(err)
	}
}

func TestAnArenaGivesAndTakes(t *testing.T) {
	a, err := NewArena()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	whole := a.free[0]
	var parts [][]byte
	for _, n := range []int{1, 4096, 4097, 100_000} {
		p, err := a.Alloc(n)
		if err != nil || len(p) != n || !a.holds(p) || !a.holds(p[n-1:]) {
			t.Fatal(n, err)
		}
		for i := range p {
			p[i] = 7
		}
		parts = append(parts, p)
	}
	if a.holds(make([]byte, 10)) || a.holds(nil) || (*Arena)(nil).holds(parts[0]) {
		t.Fatal("an arena holds what it does not hold")
	}
	for _, i := range []int{1, 3, 0, 2} {
		a.Free(parts[i])
	}
	if len(a.free) != 1 || a.free[0] != whole {
		t.Fatalf("%v is free, not %v", a.free, whole)
	}
	p, err := a.Alloc(200_000)
	if err != nil || !bytes.Equal(p, make([]byte, len(p))) {
		t.Fatal("memory that was freed is not zero", err)
	}
	if _, err := a.Alloc(whole.n); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
}
