// Package elastictest runs a whole elastic job in one process, for tests: its workers call
// elastic.Run in goroutines, and a Hub simulates their agents and the control plane. It kills
// workers as SIGKILL does, admits newcomers, and announces changes to members.
package elastictest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Hub simulates the agents and rendezvous for the workers of one job, which it identifies by their
// tokens. It seals a generation when all workers that are alive have joined, and admits newcomers
// at a planned change. Its fields are read and written within Update, or when all workers have
// ended.
type Hub struct {
	Socket  string // of the worker API, for elastic.Options
	Network *inproc.Network

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something changes
	cancel  map[string]context.CancelCauseFunc
	ended   map[string]bool // workers whose Run has returned

	Size       int // workers of the first generation
	MultipleOf int // the number of members is a multiple of it, and the others are spares; 0 = any number
	Alive      map[string]bool
	Joined     map[string]workerprotocol.JoinRequest // workers that wait for the next generation
	Generation uint64
	Members    []string // by rank
	Spares     []string // of the generation, which give the members what they have
	Address    map[string]string
	Planned    bool                             // the members are told to leave at their next commit
	Placeless  bool                             // they are not told who of them leaves
	Withdrawn  bool                             // the planned change is withdrawn
	Stopping   bool                             // the job is being stopped
	Lost       int                              // the rank that is reported lost, -1 = none
	Preempted  map[string]workerprotocol.Change // workers whose node will be taken away
	Removed    map[string]bool                  // workers that are no longer part of the job
	Refuse     int                              // the number of calls that are answered with 503
	Space      int64                            // bytes of the largest checkpoint that may be written
	Mislead    func(*workerprotocol.Assignment) // changes the answer to a newcomer; nil = not
	OnSeal     func(generation uint64, members []string)

	Done       map[string]workerprotocol.DoneReport
	FirstSteps map[uint64]map[string]workerprotocol.Report // by generation and worker
	Slowest    map[string]workerprotocol.Straggler         // by the worker that reports it
	Commits    []workerprotocol.CommitReport
	// Redundancies are what was said of it with commits and when generations began.
	Redundancies []workerprotocol.Redundancy
	Joins        []workerprotocol.JoinRequest
	// Checkpoints are the requests for space.
	Checkpoints []workerprotocol.CheckpointRequest
	Prefetches  []workerprotocol.Assignment // answers that told a newcomer where to fetch the state
}

// New starts a hub; it ends with the test.
func New(t testing.TB, size int) *Hub {
	t.Helper()
	h := &Hub{
		Socket: filepath.Join(t.TempDir(), "agent.sock"), Network: inproc.NewNetwork(), Size: size, Lost: -1,
		changed: make(chan struct{}), cancel: map[string]context.CancelCauseFunc{}, ended: map[string]bool{}, Alive: map[string]bool{}, Removed: map[string]bool{},
		Joined: map[string]workerprotocol.JoinRequest{}, Address: map[string]string{}, Preempted: map[string]workerprotocol.Change{},
		Done: map[string]workerprotocol.DoneReport{}, FirstSteps: map[uint64]map[string]workerprotocol.Report{}, Slowest: map[string]workerprotocol.Straggler{},
	}
	l, err := net.Listen("unix", h.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return h
}

// ErrKilled is the cause of the end of a killed worker's context.
var ErrKilled = errors.New("killed")

// Start adds a worker. It must call elastic.Run with the returned context and transport and with
// its name as Token, and pass the result to Ended.
func (h *Hub) Start(t testing.TB, name string) (context.Context, *inproc.Listener) {
	t.Helper()
	l, err := h.Network.Listen(name)
	if err != nil {
		t.Error(err) // t.Fatal is only for the test's goroutine
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	h.Update(func() {
		h.Alive[name] = true
		h.ended[name] = false
		h.cancel[name] = cancel
	})
	return ctx, l
}

// Kill ends workers like SIGKILL, at once; their simulated agents notice.
func (h *Hub) Kill(names ...string) {
	for _, name := range names {
		h.Network.Kill(name)
		h.mu.Lock()
		cancel := h.cancel[name]
		h.mu.Unlock()
		if cancel != nil {
			cancel(ErrKilled)
		}
	}
	h.gone(names...)
}

// Ended reports the result of Run: an agent sees a process that fails.
func (h *Hub) Ended(name string, err error) {
	if err != nil {
		h.gone(name)
	}
	h.mu.Lock()
	h.ended[name] = true
	cancel := h.cancel[name]
	h.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

func (h *Hub) gone(names ...string) {
	h.Update(func() {
		for _, name := range names {
			delete(h.Alive, name)
			delete(h.Joined, name)
		}
	})
}
