package agent_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// train starts one worker that runs until it is stopped.
func (w *world) train(run string) {
	spec := spec.Job{Command: append([]string{"fake"}, strings.Fields(run)...)}
	w.launch(events.Launch{Revision: 1, Phase: events.PhasePrepare, Generation: 1, Spec: spec, Members: []events.LaunchMember{member(0, -1, "")}})
	w.launch(events.Launch{
		Revision: 2, Phase: events.PhaseRun, Generation: 1, World: 1, Spec: spec, Master: w.joins[0].Address,
		Members: []events.LaunchMember{member(0, 0, w.joins[0].Incarnation)},
	})
}

// moved publishes the launch of a node whose place was given to another one.
func (w *world) moved() {
	w.launch(events.Launch{Revision: 3, Phase: events.PhaseStop, Generation: 1, Spec: spec.Job{Command: []string{"fake"}}, Reason: "moved"})
}

func (w *world) departures() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, h := range w.hellos {
		if h.Departing != nil {
			out = append(out, h.Departing.Reason)
		}
	}
	return out
}

func (w *world) goodbye() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byes) == 0 {
		return ""
	}
	return w.byes[0].Reason
}

func TestDepartureIsAnnouncedAtOnceAndEndsWhenWorkHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.train("run=1h")
		if code := w.post(http.MethodPost, workerprotocol.PathPreempt, 0, workerprotocol.PreemptRequest{Reason: "spot"}, nil); code != http.StatusAccepted {
			t.Errorf("a notice is answered with %d", code)
		}
		w.post(http.MethodPost, workerprotocol.PathPreempt, 0, workerprotocol.PreemptRequest{Reason: "again"}, nil)
		synctest.Wait()
		if got := w.departures(); !slices.Equal(got, []string{"preempted: spot"}) {
			t.Errorf("announced %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.goodbye(); got != "" {
			t.Errorf("it leaves with work: %q", got)
		}
		w.moved()
		time.Sleep(500 * time.Millisecond) // work may still be on its way
		synctest.Wait()
		if got := w.goodbye(); got != "" {
			t.Errorf("it leaves at once: %q", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.goodbye(); got != "departed: preempted: spot" {
			t.Errorf("goodbye %q", got)
		}
		w.wait() // Run has returned by itself
	})
}

func TestExitsOnADepartingNodeAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.train("run=5s exit=7")
		w.agent.Depart(events.Departure{})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if x := w.fact("exited").(events.WorkerExited); !x.Departing || x.ExitCode != 7 {
			t.Errorf("exited %+v", x)
		}
		w.wait()
	})
}

func TestStoppedAgentLetsItsWorkMove(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration // DepartWithin
		moves  time.Duration // when the work has moved; 0 = never
		least  time.Duration
		most   time.Duration
	}{
		"moved":         {10 * time.Second, 2 * time.Second, 2 * time.Second, 4 * time.Second},
		"none moves":    {10 * time.Second, 0, 10 * time.Second, 12 * time.Second},
		"not wanted":    {0, 0, 0, time.Second},
		"a short grace": {time.Second, 0, time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldWith(t, agent.Config{DepartWithin: c.within})
				w.train("run=1h")
				begin := time.Now()
				w.stop()
				if c.moves > 0 {
					time.Sleep(c.moves)
					w.moved()
				}
				w.wait()
				if took := time.Since(begin); took < c.least || took > c.most {
					t.Errorf("it took %s, want %s to %s", took, c.least, c.most)
				}
				if x := w.fact("exited").(events.WorkerExited); !x.Asked || x.Failed(false) {
					t.Errorf("exited %+v", x)
				}
				if got := w.departures(); (c.within > 0) != slices.Contains(got, "its agent was told to stop") {
					t.Errorf("announced %q", got)
				}
				if w.goodbye() == "" {
					t.Error("it says no goodbye")
				}
			})
		})
	}
}

// TestSIGTERMToAgentAndWorkersAtOnceIsNoFailure: batch systems end all processes of a node at once,
// so a worker may end before its agent knows of the departure.
func TestSIGTERMToAgentAndWorkersAtOnceIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWith(t, agent.Config{DepartWithin: 10 * time.Second})
		w.train("run=1h")
		w.driver.mu.Lock()
		id := w.driver.starts[0].Worker
		w.driver.mu.Unlock()
		if err := w.driver.Signal(id, "SIGTERM"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		w.stop()
		time.Sleep(time.Second)
		synctest.Wait()
		if x := w.fact("exited").(events.WorkerExited); !x.Departing || x.Signal != "SIGTERM" {
			t.Errorf("exited %+v", x)
		}
		w.wait()
	})
}

func TestFileAnnouncesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "preempted")
		w := newWorldWith(t, agent.Config{PreemptFile: file})
		time.Sleep(10 * time.Second)
		if got := w.departures(); len(got) > 0 {
			t.Errorf("announced %q without a file", got)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if got := w.departures(); len(got) == 0 || !strings.Contains(got[0], file) {
			t.Errorf("announced %q", got)
		}
		w.wait()
	})
}

// TestURLAnnouncesTheEnd runs fake metadata services; a real server has no virtual time.
func TestURLAnnouncesTheEnd(t *testing.T) {
	type answer struct {
		code int
		body string
	}
	for name, c := range map[string]struct{ before, notice answer }{
		"amazon": {answer{404, ""}, answer{200, `{"action":"terminate","time":"2026-01-02T12:00:00Z"}`}},
		"google": {answer{200, "FALSE"}, answer{200, "TRUE"}},
		"any":    {answer{503, "not yet"}, answer{204, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var now atomic.Pointer[answer]
			now.Store(&c.before)
			asked := make(chan struct{}, 100)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				a := now.Load()
				w.WriteHeader(a.code)
				_, _ = w.Write([]byte(a.body))
				select {
				case asked <- struct{}{}:
				default:
				}
			}))
			defer s.Close()
			p := playedDiscovery(t)
			a := p.agent(t, agent.Config{PreemptURL: s.URL, PreemptEvery: 5 * time.Millisecond})
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- a.Run(ctx) }()
			for range 3 {
				<-asked
			}
			if n := p.announced.Load(); n != nil {
				t.Errorf("announced %+v before the notice", n)
			}
			now.Store(&c.notice)
			select { // without work it leaves by itself
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the agent has not left")
			}
			d := p.announced.Load()
			if d == nil || !strings.Contains(d.Reason, s.URL) || (name == "amazon") != !d.Until.IsZero() {
				t.Errorf("announced %+v", d)
			}
		})
	}
}
