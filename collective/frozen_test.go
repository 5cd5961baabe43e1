package collective

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// freezer is a transport whose rank can be frozen as SIGSTOP would: its machine still receives what
// is sent to it, but it handles nothing and sends nothing until it thaws.
type freezer struct {
	Transport
	mu   sync.Mutex
	thaw chan struct{} // nil = not frozen
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thaw = make(chan struct{})
}

func (f *freezer) melt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thaw != nil {
		close(f.thaw)
		f.thaw = nil
	}
}

func (f *freezer) wait() {
	f.mu.Lock()
	thaw := f.thaw
	f.mu.Unlock()
	if thaw != nil {
		<-thaw
	}
}

func (f *freezer) hold(c net.Conn, err error) (net.Conn, error) {
	f.wait()
	if err != nil {
		return nil, err
	}
	return &icyConn{c, f}, nil
}

func (f *freezer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return f.hold(f.Transport.Dial(ctx, addr))
}

func (f *freezer) Accept(ctx context.Context) (net.Conn, error) {
	return f.hold(f.Transport.Accept(ctx))
}

type icyConn struct {
	net.Conn
	f *freezer
}

func (c *icyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.f.wait()
	return n, err
}

func (c *icyConn) Write(p []byte) (int, error) {
	c.f.wait()
	return c.Conn.Write(p)
}

// icy forms a group in which all ranks but the first can be frozen.
func icy(t *testing.T, world int, change func(*Options)) ([]*Communicator, []*freezer) {
	t.Helper()
	f := fabrics()[0]
	eps, frozen := make([]*Endpoint, world), make([]*freezer, world)
	for i := range eps {
		frozen[i] = &freezer{Transport: f.listen(t, i)}
		eps[i] = NewEndpoint(frozen[i])
		t.Cleanup(func() { _ = eps[i].Close() })
	}
	comms := form(t, eps, 1, change)
	t.Cleanup(func() {
		for _, f := range frozen {
			f.melt()
		}
		closeAll(comms)
	})
	return comms, frozen
}

func TestCloseWaitsForFrozenNeighboursOnlyOnce(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		comms, frozen := icy(t, 4, nil)
		for _, f := range frozen[1:] {
			f.freeze()
		}
		most := 6 * time.Second // for one after the other it would be four times as long
		if failed {
			comms[0].Abort(errors.New("given up"))
			most = 2 * time.Second
		}
		done, start := make(chan struct{}), time.Now()
		go func() {
			defer close(done)
			_ = comms[0].Close()
		}()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("failed %t: Close hangs", failed)
		}
		if took := time.Since(start); took > most {
			t.Errorf("failed %t: Close took %v", failed, took)
		}
	}
}

// TestAFrozenRankIsNoticedWhileOthersTalk: messages between the others go on all the time, while
// a collective operation waits for the frozen rank.
func TestAFrozenRankIsNoticedWhileOthersTalk(t *testing.T) {
	t.Parallel()
	comms, frozen := icy(t, 3, func(o *Options) { o.StallAfter = 300 * time.Millisecond })
	mustAll(t, 3, func(r int) error { return comms[r].Barrier(soon(t)) })
	frozen[2].freeze()
	ctx := soon(t)
	errs := each(4, func(i int) error {
		c := comms[i%2]
		if i < 2 {
			return c.Barrier(ctx)
		}
		for p := make([]byte, 1); ; {
			var err error
			if i == 2 {
				err = c.Send(ctx, 1, p)
			} else {
				err = c.Recv(ctx, 0, p)
			}
			if err != nil {
				return err
			}
		}
	})
	for i, err := range errs {
		wantLost(t, i%2, err, 2)
		if !errors.Is(err, ErrSilent) {
			t.Errorf("rank %d: %v", i%2, err)
		}
	}
}
