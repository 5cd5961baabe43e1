package collective

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/exec"
	"github.com/regroup-io/regroup/collective/shm"
)

// Transport makes connections. tcp.Transport and inproc.Listener implement it.
type Transport = control.Transport

// Endpoint is where a process receives connections, for all its generations, with the memory that
// it shares with other processes of its machine. It outlives communicators, so that the address of
// a process never changes.
//
// A connection for a generation that is over is refused with the reason. One for a generation that
// this process has not begun yet, because the peer was told first, waits until the communicator is
// made.
type Endpoint struct {
	acceptor  *control.Endpoint
	encrypted bool
	newConn   func(net.Conn) (exec.Conn, error) // tests replace it
	mappings  *shm.MappingCache

	mu     sync.Mutex
	closed bool
	arena  *shm.Arena // nil = not needed yet
}

const handshakeTimeout = 5 * time.Second

// NewEndpoint starts to accept connections on t, which it closes in its own Close.
//
// A handshake lasts for at most 5 s; a connection waits for a generation that has not begun for at
// most 30 s (the peer then tries again). Of each, at most 64 of one source and 256 in all are kept:
// one more closes the oldest of the source that has the most, so that a peer that connects and is
// silent hinders nobody for long.
func NewEndpoint(t Transport) *Endpoint { return newEndpoint(t, handshakeTimeout, false) }

// NewEncryptedEndpoint is NewEndpoint for connections that others can read or alter on their way:
// what follows the handshake is encrypted with keys that are derived from the generation's token,
// which must not be empty. It costs throughput and latency. Endpoints that are encrypted and those
// that are not refuse each other. Memory that ranks of one machine share is not encrypted, and
// neither is what NCCL sends.
func NewEncryptedEndpoint(t Transport) *Endpoint { return newEndpoint(t, handshakeTimeout, true) }

func newEndpoint(t Transport, handshakeTimeout time.Duration, encrypt bool) *Endpoint {
	return &Endpoint{
		encrypted: encrypt,
		acceptor:  control.NewEndpoint(t, handshakeTimeout, encrypt), newConn: exec.NewConn, mappings: shm.NewMappingCache(),
	}
}

// Addr is what peers dial; tell them through Options.Peers.
func (e *Endpoint) Addr() string { return e.acceptor.Addr() }

// Close stops accepting, drops connections that wait, and returns when every goroutine of the
// endpoint has ended. Close the communicators first.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	err := e.acceptor.Close()
	e.mappings.Prune()
	if e.arena != nil {
		e.arena.Close()
	}
	return err
}

// Alloc returns n bytes of zeroed memory that ranks on the same machine read in place: collective
// operations on tensors in it are several times as fast as on others. It stays valid through all
// generations, until Free or until the endpoint is closed.
func (e *Endpoint) Alloc(n int) ([]byte, error) {
	a, err := e.sharedArena()
	if err != nil {
		return nil, err
	}
	return a.Alloc(n)
}

// Free gives memory from Alloc back. No operation may be using it.
func (e *Endpoint) Free(p []byte) { e.arena.Free(p) }

// sharedArena makes the arena when it is first needed.
func (e *Endpoint) sharedArena() (*shm.Arena, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena != nil {
		return e.arena, nil
	}
	if e.closed {
		return nil, ErrClosed
	}
	a, err := shm.NewArena()
	e.arena = a
	return a, err
}

// Service answers peers' requests: connections of processes that are not in the generation and want
// something of a member, such as its state.
type Service = control.Service

// SetService makes s the service that peers' requests reach from now on; nil refuses them. It ends
// the requests to the previous service and waits until they are over.
func (e *Endpoint) SetService(s *Service) { e.acceptor.SetService(s) }

// DialService connects to the service at an address. The Serve field of s is not used. A refusal is
// a *RefusedError with rank -1.
func (e *Endpoint) DialService(ctx context.Context, address string, s Service) (net.Conn, error) {
	return e.acceptor.DialService(ctx, address, s)
}

// Ping returns nil if an endpoint answers at an address, whether it knows the job or not.
func (e *Endpoint) Ping(ctx context.Context, address, job string, generation uint64) error {
	return e.acceptor.Ping(ctx, address, job, generation)
}
