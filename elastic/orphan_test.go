package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic/internal/agentwatch"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// loneAgent assigns one worker to a generation of its own. What it does from then on is up to the
// test.
type loneAgent struct {
	t      *testing.T
	socket string
	server *http.Server
	frozen atomic.Bool // takes calls and answers none
	thawed chan struct{}
	polls  atomic.Int64

	began           time.Time
	asked, answered atomic.Int64 // since began: the newest poll for changes, and the newest that was answered for sure
}

func newLoneAgent(t *testing.T) *loneAgent {
	t.Helper()
	a := &loneAgent{t: t, socket: filepath.Join(t.TempDir(), "agent.sock"), thawed: make(chan struct{}), began: time.Now()}
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	a.server = &http.Server{Handler: a}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = a.server.Serve(l)
	}()
	t.Cleanup(func() {
		close(a.thawed)
		_ = a.server.Close()
		<-served
	})
	return a
}

func (a *loneAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.frozen.Load() {
		select {
		case <-a.thawed:
		case <-r.Context().Done():
		}
		return
	}
	switch r.URL.Path {
	case workerprotocol.PathJoin:
		_ = json.NewEncoder(w).Encode(workerprotocol.Assignment{Verdict: workerprotocol.Assigned, Generation: 1, World: 1, LocalSize: 1, CrossSize: 1, Token: "t"})
	case workerprotocol.PathChanges:
		a.polls.Add(1)
		a.answered.Store(a.asked.Swap(int64(time.Since(a.began)))) // who asks again has got its answer
		w.WriteHeader(http.StatusNoContent)
		wait.Sleep(r.Context(), time.Millisecond) // not too eager a server
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// TestAWorkerWhoseAgentIsGoneStops: it would train on for ever in a generation that it alone still
// believes in.
func TestAWorkerWhoseAgentIsGoneStops(t *testing.T) {
	const limit = 200 * time.Millisecond
	for name, end := range map[string]func(a *loneAgent){
		"frozen": func(a *loneAgent) { a.frozen.Store(true) },
		"killed": func(a *loneAgent) { _ = a.server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newLoneAgent(t)
			var since time.Time
			began := time.Now()
			err := Run(t.Context(), Options{Job: "j", Socket: a.socket, Token: "w", OrphanTimeout: limit, AgentTimeout: time.Minute}, NewState(samples.NewSampler(64, 1)),
				func(ctx context.Context, s *Session) error {
					for {
						if since.IsZero() && time.Since(began) > 2*limit { // all is well until then
							since = time.Now()
							end(a)
						}
						if err := s.Consume(ctx, s.Next(1)); err != nil {
							return err
						}
						if err := s.Commit(ctx); err != nil {
							return err
						}
						if !since.IsZero() && time.Since(since) > 20*time.Second {
							return errors.New("it trains on")
						}
					}
				})
			if !errors.Is(err, agentwatch.ErrOrphaned) {
				t.Fatalf("Run returns %v", err)
			}
			if a.polls.Load() == 0 {
				t.Error("it never asked for news")
			}
			if silent := time.Since(a.began) - time.Duration(a.answered.Load()); silent < limit {
				t.Errorf("it has stopped after a silence of at most %s; the limit is %s", silent, limit)
			}
		})
	}
}
