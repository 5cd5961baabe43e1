// Package workerapi serves the API of package workerprotocol over HTTP on a Unix socket.
//
// It authenticates workers by a bearer token per incarnation, validates requests and holds long
// polls. Every call is passed to the agent, which decides what follows.
package workerapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Calls are the callbacks for workers' calls, all of which must be set. They must not block, except
// Peer. worker is the name given to Admit. A *Refusal fails the call with its code.
type Calls struct {
	Join   func(worker string, r workerprotocol.JoinRequest)
	Report func(worker string, r workerprotocol.Report) error
	Commit func(worker string, r workerprotocol.CommitReport) error
	Done   func(worker string, r workerprotocol.DoneReport) error
	Span   func(worker string, r workerprotocol.SpanReport) error
	Hash   func(worker string, r workerprotocol.HashReport) error
	// Checkpoint grants the space for a checkpoint, or says why there is none.
	Checkpoint func(worker string, r workerprotocol.CheckpointRequest) error
	// Preempt is called with the notice that this node will be taken away. It is from no worker.
	Preempt func(worker string, r workerprotocol.PreemptRequest) error
	// Environment is called with the environment of a command that submits a job. It is from no
	// worker.
	Environment func(worker string, r workerprotocol.SubmitEnvironment) error
	// Peer returns the address of a rank of the worker's generation.
	Peer func(ctx context.Context, worker string, generation uint64, rank int) (workerprotocol.Peer, error)
}

// Options of a Server.
type Options struct {
	Socket  string // wanted path; see Path
	Calls   Calls
	PollFor time.Duration // how long a poll waits before 204; 0 = 25 s
	// Listen opens the socket; nil = a Unix socket that only this user may use.
	Listen func(ctx context.Context, path string) (net.Listener, error)
}

// Refusal is an error that is passed to the worker unchanged.
type Refusal struct {
	Status  int    // HTTP status, 4xx or 5xx
	Code    string // one of package errcode's codes
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Server is the worker API of one agent.
type Server struct {
	opt       Options
	path      string
	own       bool // the socket's directory is created for it alone, and removed with it
	mu        sync.Mutex
	tokens    map[string]string   // token -> worker
	mailboxes map[string]*mailbox // by worker
	users     userSockets
}

// maxPath is the size of sun_path on Linux less its final zero (unix(7)).
const maxPath = 107

// New validates the options. If the wanted path is too long for a socket, it uses a short one in a
// directory of its own, below XDG_RUNTIME_DIR or the temporary directory, which Path returns.
func New(o Options) (*Server, error) {
	if o.Socket == "" {
		return nil, errors.New("workerapi: Socket is empty: give the path of the worker socket")
	}
	o.PollFor = cmp.Or(o.PollFor, 25*time.Second)
	if o.Listen == nil {
		o.Listen = listen
	}
	s := &Server{opt: o, path: o.Socket, tokens: map[string]string{}, mailboxes: map[string]*mailbox{}}
	if len(s.path) > maxPath {
		s.path, s.own = shortPath(), true
		if len(s.path) > maxPath {
			return nil, fmt.Errorf("workerapi: socket path %q has more than %d characters, and the temporary directory is too deep as well: set TMPDIR to a short one", o.Socket, maxPath)
		}
	}
	return s, nil
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Run serves until ctx ends. ready (may be nil) is called when the socket accepts calls.
func (s *Server) Run(ctx context.Context, ready func()) error {
	if s.own {
		// The directory must be private: its owner could replace the socket by another one and
		// receive the workers' tokens.
		dir := filepath.Dir(s.path)
		note := workerprotocol.SocketNote(s.opt.Socket)
		removeLeft(note)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("workerapi: directory of the socket: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		err := os.MkdirAll(filepath.Dir(note), 0o700)
		if err == nil {
			err = os.WriteFile(note, []byte(dir), 0o600)
		}
		if err != nil {
			return fmt.Errorf("workerapi: note of the socket: %w", err)
		}
		defer func() { _ = os.Remove(note) }()
	}
	l, err := s.opt.Listen(ctx, s.path)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           s.handler(true),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends polls
	}
	others := &http.Server{Handler: s.handler(false), ReadHeaderTimeout: srv.ReadHeaderTimeout, BaseContext: srv.BaseContext}
	defer s.runUsers(others)()
	defer func() { _ = others.Close() }()
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
		return nil, fmt.Errorf("workerapi: remove the socket of an earlier agent: %w", err)
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

// Admit registers a worker's token.
func (s *Server) Admit(token, worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = worker
	s.mailboxes[worker] = &mailbox{joins: map[chan joinResult]bool{}, wake: make(chan struct{})}
}

// Dismiss removes a worker and ends its polls.
func (s *Server) Dismiss(worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, w := range s.tokens {
		if w == worker {
			delete(s.tokens, t)
		}
	}
	if b := s.mailboxes[worker]; b != nil {
		b.close()
		delete(s.mailboxes, worker)
	}
}

// Answer ends the worker's waiting join. Without one it is dropped, because the worker will ask
// again.
func (s *Server) Answer(worker string, a workerprotocol.Assignment) {
	if b := s.mailbox(worker); b != nil {
		b.answer(joinResult{assignment: a})
	}
}

// Refuse fails the worker's waiting join.
func (s *Server) Refuse(worker string, r *Refusal) {
	if b := s.mailbox(worker); b != nil {
		b.answer(joinResult{refusal: r})
	}
}

// Push queues a change for the worker until it polls.
func (s *Server) Push(worker string, c workerprotocol.Change) {
	if b := s.mailbox(worker); b != nil {
		b.push(c)
	}
}

func (s *Server) mailbox(worker string) *mailbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mailboxes[worker]
}

// shortPath returns a path for a socket in a directory with an unpredictable name, so that no other
// user can create it first.
func shortPath() string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if i, err := os.Stat(base); err != nil || !i.IsDir() || len(base) > maxPath/2 {
		base = os.TempDir()
	}
	return filepath.Join(base, dirPrefix+strings.ToLower(rand.Text()), "agent.sock")
}

// private returns an error if another user could replace a socket in a directory.
func private(dir string) error {
	i, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("workerapi: directory of the socket: %w", err)
	}
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("workerapi: whose directory %s is cannot be seen", dir)
	}
	switch me := os.Getuid(); {
	case me != 0 && int(st.Uid) != me && st.Uid != 0:
		return fmt.Errorf("workerapi: the directory %s is user %d's: he could pass as this node's agent; give one of your own (--state-dir)", dir, st.Uid)
	case i.Mode().Perm()&0o022 != 0 && i.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("workerapi: the directory %s may be changed by others (%s), who could pass as this node's agent: chmod go-w %s", dir, i.Mode().Perm(), dir)
	}
	return nil
}
