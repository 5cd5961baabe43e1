// Package elastictest lets a test run a whole elastic job in one process: its workers call
// elastic.Run in goroutines, and a Hub stands for their agents and the control plane. It kills
// workers as SIGKILL does, lets newcomers in, and tells members of what is planned.
package elastictest

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective/inproc"
)

// Hub plays agents and rendezvous for the workers of one job, told apart by their tokens: it seals
// a generation when all who are alive have asked for it, and lets newcomers in at a planned change.
// Its fields are read and written within Update, or when all workers have ended.
type Hub struct {
	Socket  string // of the worker API, for elastic.Options
	Network *inproc.Network

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something changes
	cancel  map[string]context.CancelCauseFunc

	Size       int // workers of the first generation
	Alive      map[string]bool
	Joined     map[string]wire.JoinRequest // who waits for the next generation
	Generation uint64
	Members    []string // by rank
	Address    map[string]string
	Planned    bool                   // the members are told to leave at their next commit
	Undone     bool                   // what was planned is off
	Stopping   bool                   // the job is being stopped
	Lost       int                    // rank that is reported lost, -1 = none
	Leaving    map[string]wire.Change // who is told that its node will be taken away, and how
	Removed    map[string]bool        // who is no longer part of the job
	Refuse     int                    // answers 503 to so many calls
	Mislead    func(*wire.Assignment) // changes what a newcomer is told; nil = nothing
	OnSeal     func(generation uint64, members []string)

	Done    map[string]wire.DoneReport
	Firsts  map[uint64]map[string]wire.Report // by generation and worker
	Slowest map[string]wire.Straggler         // by the worker that names it
	Commits []wire.CommitReport
	Joins   []wire.JoinRequest
	WarmUps []wire.Assignment
}

// New starts a hub; it ends with the test.
func New(t testing.TB, size int) *Hub {
	t.Helper()
	h := &Hub{
		Socket: filepath.Join(t.TempDir(), "agent.sock"), Network: inproc.NewNetwork(), Size: size, Lost: -1,
		changed: make(chan struct{}), cancel: map[string]context.CancelCauseFunc{}, Alive: map[string]bool{}, Removed: map[string]bool{},
		Joined: map[string]wire.JoinRequest{}, Address: map[string]string{}, Leaving: map[string]wire.Change{},
		Done: map[string]wire.DoneReport{}, Firsts: map[uint64]map[string]wire.Report{}, Slowest: map[string]wire.Straggler{},
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
