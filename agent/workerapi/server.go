// Package workerapi serves the worker API of package wire over HTTP on a Unix socket.
//
// It knows who calls (a bearer token per life of a worker), checks what is said and holds long
// polls; what follows from a call is decided by the agent, to which every call is handed over.
package workerapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// Calls are what workers do, handed over. They must not block, except Peer. worker is the name
// given to Admit.
type Calls struct {
	Join   func(worker string, r wire.JoinRequest)
	Report func(worker string, r wire.Report)
	Commit func(worker string, r wire.CommitReport)
	Done   func(worker string, r wire.DoneReport)
	// Preempt is the notice that this node will be taken away. It comes from no worker.
	Preempt func(r wire.PreemptRequest)
	// Peer finds the address of a rank of the worker's generation. A *Refusal fails the call with
	// its code.
	Peer func(ctx context.Context, worker string, generation uint64, rank int) (wire.Peer, error)
}

// Options of a Server.
type Options struct {
	Socket  string // wanted path; see Path
	Calls   Calls
	PollFor time.Duration // how long a poll waits before 204; 0 = 25 s
	// Listen opens the socket; nil = a Unix socket that only this user may use.
	Listen func(ctx context.Context, path string) (net.Listener, error)
}

// Refusal is an error that a worker sees as it is.
type Refusal struct {
	Status  int    // of HTTP, 4xx or 5xx
	Code    string // one of package events' codes
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Server is the worker API of one agent.
type Server struct {
	opt    Options
	path   string
	own    bool // the socket's directory is made for it alone, and removed with it
	mu     sync.Mutex
	tokens map[string]string // token -> worker
	boxes  map[string]*box   // by worker
}

// maxPath is the size of sun_path on Linux less its final zero (unix(7)).
const maxPath = 107

// New checks the options. When the wanted path is too long for a socket, a short one in a directory
// of its own is taken, below XDG_RUNTIME_DIR or the temporary directory: Path tells which.
func New(o Options) (*Server, error) {
	if o.Socket == "" {
		return nil, errors.New("workerapi: Socket is empty: give the path of the worker socket")
	}
	if o.Calls.Join == nil || o.Calls.Report == nil || o.Calls.Commit == nil || o.Calls.Done == nil || o.Calls.Peer == nil || o.Calls.Preempt == nil {
		return nil, errors.New("workerapi: a callback is missing")
	}
	if o.PollFor == 0 {
		o.PollFor = 25 * time.Second
	}
	if o.Listen == nil {
		o.Listen = listen
	}
	s := &Server{opt: o, path: o.Socket, tokens: map[string]string{}, boxes: map[string]*box{}}
	if len(s.path) > maxPath {
		s.path, s.own = shortPath(), true
		if len(s.path) > maxPath {
			return nil, fmt.Errorf("workerapi: socket path %q has more than %d characters, and the temporary directory is too deep as well: set TMPDIR to a short one", o.Socket, maxPath)
		}
	}
	return s, nil
}

// Path is where the socket is.
func (s *Server) Path() string { return s.path }

// Run serves until ctx ends. ready (may be nil) is called when the socket takes calls.
func (s *Server) Run(ctx context.Context, ready func()) error {
	if s.own {
		// Exclusively: the owner of the directory of a socket can put another one in its place,
		// which then receives the workers' tokens.
		dir := filepath.Dir(s.path)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("workerapi: directory of the socket: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	l, err := s.opt.Listen(ctx, s.path)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends every poll with us
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	if ready != nil {
		ready()
	}
	select {
	case err = <-served:
		return fmt.Errorf("workerapi: serve: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(stop) != nil {
		_ = srv.Close()
	}
	<-served
	return nil
}

func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("workerapi: directory of the socket: %w", err)
	}
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("workerapi: remove the socket of an earlier life: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("workerapi: listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("workerapi: protect the socket: %w", err)
	}
	return l, nil
}

// Admit lets a worker in by its token.
func (s *Server) Admit(token, worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = worker
	s.boxes[worker] = newBox()
}

// Dismiss forgets a worker and ends its polls.
func (s *Server) Dismiss(worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, w := range s.tokens {
		if w == worker {
			delete(s.tokens, t)
		}
	}
	if b := s.boxes[worker]; b != nil {
		b.close()
		delete(s.boxes, worker)
	}
}

// Answer ends the worker's waiting join; without one it is dropped, because the worker asks again.
func (s *Server) Answer(worker string, a wire.Assignment) {
	if b := s.box(worker); b != nil {
		b.answer(joinResult{assignment: a})
	}
}

// Refuse fails the worker's waiting join.
func (s *Server) Refuse(worker string, r *Refusal) {
	if b := s.box(worker); b != nil {
		b.answer(joinResult{refusal: r})
	}
}

// Push keeps news for the worker until it asks for them.
func (s *Server) Push(worker string, c wire.Change) {
	if b := s.box(worker); b != nil {
		b.push(c)
	}
}

func (s *Server) box(worker string) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[worker]
}
