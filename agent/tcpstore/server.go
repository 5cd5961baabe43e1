package tcpstore

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves one store. All its methods may be called at any time, by any goroutine.
type Server struct {
	opt      Options
	listener net.Listener
	store    *store

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool

	silent           atomic.Int64 // connections that have sent nothing yet
	refused, garbage atomic.Uint64
	ended            chan struct{} // closed by Close
	endOnce          sync.Once
	running          sync.WaitGroup
}

func newServer(l net.Listener, o Options) *Server {
	return &Server{opt: o, listener: l, store: newStore(o.MaxMemory), conns: map[*conn]struct{}{}, ended: make(chan struct{})}
}

// Close closes the listener and all connections. When it returns, all goroutines of the server have
// ended.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.endOnce.Do(func() { close(s.ended) })
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // its goroutine reports the error, if any
	}
	s.mu.Unlock()
	s.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Get returns a copy of the value that a client reads under this key.
func (s *Server) Get(key string) ([]byte, bool) {
	v := s.store.getOne("/" + key)
	if v == nil {
		return nil, false
	}
	defer v.release(&s.store.budget)
	return append([]byte{}, v.data...), true
}

// Set stores a copy of a value, as a client does.
func (s *Server) Set(key string, data []byte) error {
	woken, err := s.store.set("/"+key, append([]byte{}, data...))
	notify(woken)
	return err
}

// accept accepts connections until the listener is closed.
func (s *Server) accept() {
	for {
		nc, err := s.listener.Accept()
		switch {
		case err == nil:
			s.admit(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, mostly: the connection stays in the queue
			s.opt.Log.Warn("store: cannot accept a connection", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-s.ended:
			}
		}
	}
}

// admit begins to serve a connection if there is room for it.
func (s *Server) admit(nc net.Conn) {
	c := s.newConn(nc)
	s.mu.Lock()
	n := len(s.conns)
	full := n >= s.opt.MaxConnections || s.silent.Load() >= int64(s.opt.MaxSilent)
	if full || s.closed {
		s.mu.Unlock()
		_ = nc.Close() // nothing was sent
		if full && powerOf2(s.refused.Add(1)) {
			s.opt.Log.Warn("store: too many connections, this one is refused", "client", nc.RemoteAddr(),
				"connections", n, "silent", s.silent.Load(), "refused", s.refused.Load())
		}
		return
	}
	s.conns[c] = struct{}{}
	s.silent.Add(1)
	s.running.Go(func() { s.run(c) })
	s.mu.Unlock()
}

// run serves a connection, and logs why it ends.
func (s *Server) run(c *conn) {
	err := c.serve()
	if !c.spoken {
		s.hasSpoken()
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close() // the error that matters is err
	var g garbage
	switch log := s.opt.Log.With(slog.Any("client", c.RemoteAddr()), slog.Any("error", err)); {
	case isDisconnect(err):
		log.Debug("store: a connection has ended")
	case errors.As(err, &g):
		if n := s.garbage.Add(1); powerOf2(n) {
			log.Info("store: a connection that is none of torch.distributed is closed", "so far", n)
		}
	default:
		log.Warn("store: a client is disconnected")
	}
}

// hasSpoken counts a connection that is silent no longer.
func (s *Server) hasSpoken() { s.silent.Add(-1) }

// powerOf2 tells whether the n-th message of a kind is logged: anybody may cause them.
func powerOf2(n uint64) bool { return n&(n-1) == 0 }
