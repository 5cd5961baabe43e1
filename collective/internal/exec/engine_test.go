package exec

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/shm"
	"github.com/regroup-io/regroup/collective/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("the test hangs"))
	t.Cleanup(cancel)
	return ctx
}

func listen(t *testing.T) control.Transport {
	t.Helper()
	l, err := tcp.Listen(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rank is a session with its engine, as package collective makes them.
type rank struct {
	session *control.Session
	engine  *Engine
	cfg     control.Config
}

// newRanks returns one rank for each transport. They have not started.
func newRanks(t *testing.T, transports []control.Transport, change func(rank int, c *control.Config, e *Config)) []*rank {
	t.Helper()
	eps := make([]*control.Endpoint, len(transports))
	for i, tr := range transports {
		eps[i] = control.NewEndpoint(tr, 5*time.Second, false)
		t.Cleanup(func() { _ = eps[i].Close() })
	}
	ranks := make([]*rank, len(transports))
	for i := range ranks {
		c := control.Config{
			Job: "job", Generation: 1, Rank: i, World: len(transports), Endpoint: eps[i], StallAfter: control.DefaultStallAfter,
			Peers: func(_ context.Context, rank int) (string, error) { return eps[rank].Addr(), nil },
		}
		e := Config{
			Rank: i, World: len(transports), StallAfter: c.StallAfter, Streams: 1, InlineBytes: 8 << 20, NewConn: NewConn,
			Arena: func() (*shm.Arena, error) { return nil, errors.New("none") }, Mappings: shm.NewMappingCache(),
		}
		if change != nil {
			change(i, &c, &e)
		}
		s := control.New(c)
		ranks[i] = &rank{s, New(s, e), c}
	}
	return ranks
}

// join starts a rank and connects it.
func (r *rank) join(ctx context.Context, data control.DataPlane) error {
	if err := r.session.Start(data); err != nil {
		return err
	}
	if err := r.session.Connect(ctx); err != nil {
		return err
	}
	if err := r.engine.Connect(ctx); err != nil {
		return err
	}
	return r.session.Confirm(r.engine.SharesMemory)
}

func (r *rank) close() {
	r.session.BeginClose()
	r.session.Leave()
	r.engine.Interrupt()
	for r.session.Busy() {
		runtime.Gosched()
	}
	r.engine.Stop()
	r.session.Wait()
	r.engine.Close()
}

func (r *rank) barrier(ctx context.Context) error {
	if err := r.engine.Acquire(ctx); err != nil {
		return err
	}
	defer r.engine.Release()
	return r.engine.Execute(ctx, frame.Descriptor{Method: frame.Barrier, Type: kernel.Uint8}, nil, nil, nil)
}

// stuck is a data plane whose Interrupt does its work and then waits, so that the session has
// failed and its context has not ended.
type stuck struct {
	*Engine
	interrupted, resume chan struct{}
	once                sync.Once
}

func (s *stuck) Interrupt() {
	s.Engine.Interrupt()
	s.once.Do(func() {
		close(s.interrupted)
		<-s.resume
	})
}

// TestAConnectionThatIsMadeDuringTheFailureIsNotUsed: Fail breaks all connections that it finds,
// and ends the session's context last. An operation that makes one in between must see the failure,
// or nobody wakes it.
func TestAConnectionThatIsMadeDuringTheFailureIsNotUsed(t *testing.T) {
	for name, use := range map[string]func(context.Context, *rank) error{
		"data": func(ctx context.Context, r *rank) error { return r.barrier(ctx) },
		"p2p":  func(ctx context.Context, r *rank) error { return r.engine.Send(ctx, 0, 1, make([]byte, 64<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			failure := error(&control.AbortedError{Rank: 0, Generation: 1, Cause: errors.New("x")})
			var plane atomic.Pointer[stuck]
			var ranks []*rank
			var failing sync.Once
			ranks = newRanks(t, []control.Transport{listen(t), listen(t)}, func(i int, c *control.Config, _ *Config) {
				peers := c.Peers
				c.Peers = func(ctx context.Context, rank int) (string, error) {
					if s := plane.Load(); s != nil && i == 0 {
						failing.Do(func() { go ranks[0].session.Fail(failure) })
						<-s.interrupted
					}
					return peers(ctx, rank)
				}
			})
			s := &stuck{Engine: ranks[0].engine, interrupted: make(chan struct{}), resume: make(chan struct{})}
			var joined sync.WaitGroup
			for i, data := range []control.DataPlane{s, ranks[1].engine} {
				joined.Go(func() {
					if err := ranks[i].join(soon(t), data); err != nil {
						t.Error(err)
					}
				})
			}
			joined.Wait()
			plane.Store(s)
			done := make(chan error, 1)
			go func() { done <- use(soon(t), ranks[0]) }()
			select {
			case err := <-done:
				if !errors.Is(err, failure) {
					t.Error(err)
				}
			case <-time.After(control.DefaultStallAfter / 4):
				t.Error("it uses the connection")
			}
			close(s.resume)
			for _, r := range ranks {
				r.close()
			}
		})
	}
}

// counter is a transport that knows how many of its connections are open.
type counter struct {
	control.Transport
	open atomic.Int64
}

func (c *counter) hold(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &countedConn{Conn: conn, c: c}, nil
}

func (c *counter) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.hold(c.Transport.Dial(ctx, addr))
}

func (c *counter) Accept(ctx context.Context) (net.Conn, error) {
	return c.hold(c.Transport.Accept(ctx))
}

type countedConn struct {
	net.Conn
	c    *counter
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.c.open.Add(-1) })
	return c.Conn.Close()
}

// TestAConnectionThatCameTooEarlyIsClosed: rank 1 is ready to share memory, rank 0 never will be,
// because rank 4 does not come, which is a neighbour of rank 0 alone.
func TestAConnectionThatCameTooEarlyIsClosed(t *testing.T) {
	const world = 6
	open := &counter{Transport: listen(t)}
	transports := []control.Transport{open}
	for range world - 1 {
		transports = append(transports, listen(t))
	}
	ranks := newRanks(t, transports, func(i int, _ *control.Config, e *Config) {
		e.LocalSize = 1
		if i < 2 {
			e.LocalRank, e.LocalSize = i, 2
		}
	})
	ctx, cancel := context.WithCancel(soon(t))
	errs := make([]error, world)
	var all sync.WaitGroup
	for i, r := range ranks {
		if i == 4 {
			continue
		}
		all.Go(func() {
			errs[i] = r.join(ctx, r.engine)
			r.close()
		})
	}
	// Polled: a connection that waits in arrivals must stay there.
	for end := time.Now().Add(patience); len(ranks[0].engine.local.arrivals) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("rank 1 does not want to share")
			break
		}
	}
	cancel()
	all.Wait()
	for i, err := range errs[:2] {
		if err == nil {
			t.Errorf("rank %d joined", i)
		}
	}
	_ = ranks[0].cfg.Endpoint.Close()
	if n := open.open.Load(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}
