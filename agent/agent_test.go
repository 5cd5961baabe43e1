package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const job = ident.JobID("mnist-7f3a")

// pipes is a listener without a network, because a network does not use virtual time.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// tcpPipes stands for a TCP listener that nobody dials: a bubble of synctest must not wait for the
// network.
type tcpPipes struct{ *pipes }

func (tcpPipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 29400} }

func listenNowhere(context.Context, string) (net.Listener, error) { return tcpPipes{newPipes()}, nil }

// spy is a fake driver that records what it was asked to start.
type spy struct {
	*fakeDriver
	mu     sync.Mutex
	starts []worker.StartProcess
}

func (s *spy) Start(p worker.StartProcess, report func(worker.Input), out func(string, []output.Line)) {
	s.mu.Lock()
	s.starts = append(s.starts, p)
	s.mu.Unlock()
	s.fakeDriver.Start(p, report, out)
}

// noticed records each notice as it is sent, because the order of receivers is random.
type noticed struct {
	broker.Signals
	note func()
}

func (n noticed) Send(subject string, data []byte) error {
	if strings.HasPrefix(subject, strings.TrimSuffix(events.AllNotices, "*")) {
		n.note()
	}
	return n.Signals.Send(subject, data)
}

// world is one agent with fake services.
type world struct {
	t        *testing.T
	bus      *memory.Bus
	driver   *spy
	pipes    *pipes
	agent    *agent.Agent
	stop     context.CancelFunc
	wait     func()
	mu       sync.Mutex
	facts    []events.Body
	joins    []events.MemberJoin
	asked    []int    // number of joins in each request
	received []string // requests and signals
	beats    []events.Heartbeat
	lines    []string
	hellos   []events.NodeHello
	byes     []events.NodeLeave

	welcome events.NodeWelcome // discovery's answers
	lease   events.LeaseGrant
}

// longLease never ends in a test.
var longLease = events.LeaseGrant{Restart: spec.Duration(time.Hour), InPlace: spec.Duration(time.Hour)}

// newWorld must be called within synctest.Test: all sleeps are virtual.
func newWorld(t *testing.T, leftovers ...worker.Orphaned) *world {
	return newWorldWith(t, agent.Config{}, leftovers...)
}

func newWorldWith(t *testing.T, config agent.Config, leftovers ...worker.Orphaned) *world {
	w := &world{t: t, bus: memory.New(), driver: &spy{fakeDriver: newFakeDriver(leftovers...)}, pipes: newPipes(), lease: longLease}
	ports := w.bus.Ports()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	serve := func(subject string, f func(data []byte) events.Body) {
		all.Go(func() {
			_ = ports.Calls.Serve(ctx, subject, "", func(_ context.Context, data []byte) ([]byte, error) { return bodies.Encode(f(data)) })
		})
	}
	note := func(what string) { w.mu.Lock(); defer w.mu.Unlock(); w.received = append(w.received, what) }
	serve(events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), func(d []byte) events.Body {
		b, _ := bodies.Decode[events.NodeHello](d)
		w.mu.Lock()
		w.hellos = append(w.hellos, b)
		defer w.mu.Unlock()
		w.received = append(w.received, "hello")
		return w.welcome
	})
	serve(events.RequestSubject(events.ServiceDiscovery, events.VerbRenew), func([]byte) events.Body {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.lease
	})
	serve(events.RequestSubject(events.ServiceDiscovery, events.VerbLeave), func(d []byte) events.Body {
		b, _ := bodies.Decode[events.NodeLeave](d)
		w.mu.Lock()
		w.byes = append(w.byes, b)
		w.mu.Unlock()
		note("bye")
		return events.NodeWelcome{}
	})
	serve(events.RequestSubject(events.ServiceRendezvous, events.VerbJoins), func(d []byte) events.Body {
		all, _ := bodies.Decode[events.MemberJoins](d)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.joins = append(w.joins, all.Joins...)
		answers := make([]events.MemberAnswer, len(all.Joins))
		for i := range answers {
			answers[i].MemberWaiting = events.MemberWaiting{Job: job, Proposed: 1}
		}
		w.asked = append(w.asked, len(answers))
		return events.MemberAnswers{Answers: answers}
	})
	serve(events.RequestSubject(events.ServiceRendezvous, events.VerbPeers), func([]byte) events.Body {
		return events.PeersAnswer{Addresses: map[int]string{1: "10.0.0.2:7"}}
	})
	all.Go(func() {
		_ = ports.Signals.Hear(ctx, events.AllHeartbeats, "", func(_ string, d []byte) {
			b, _ := bodies.Decode[events.Heartbeat](d)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.beats = append(w.beats, b)
		}, nil)
	})
	all.Go(func() {
		_ = ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: broker.FromFirst}, func(m broker.Stored) error {
			e, err := cloudevent.Decode(m.Header, m.Data)
			if err != nil {
				t.Error(err)
				return nil
			}
			note(e.Body.Type().Kind())
			w.mu.Lock()
			defer w.mu.Unlock()
			w.facts = append(w.facts, e.Body)
			return nil
		}, nil)
	})
	mine := ports
	mine.Signals = noticed{ports.Signals, func() { note("notice") }}
	a, err := agent.New(agent.Options{
		Node: "node-a", Slots: 2, Advertise: "10.0.0.1", StateDir: t.TempDir(), Ports: mine, Driver: w.driver, Incarnation: "01AGENT", Config: config, CheckpointSpace: 2000,
		Listen:    func(context.Context, string) (net.Listener, error) { return w.pipes, nil },
		ListenTCP: listenNowhere,
		Output:    func(l logs.Line) { w.mu.Lock(); defer w.mu.Unlock(); w.lines = append(w.lines, l.Prefix()+" "+l.Text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.agent = a
	synctest.Wait() // the services answer from the first question on
	run, stop := context.WithCancel(context.Background())
	w.stop = stop
	ended := make(chan error, 1)
	go func() { ended <- a.Run(run) }()
	w.wait = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait() // what it published last is received
		cancel()
		all.Wait()
	})
	synctest.Wait()
	return w
}

func (w *world) launch(l events.Launch) {
	w.t.Helper()
	l.Job, l.Node = job, "node-a"
	l.Spec.Name = "mnist"
	data, err := bodies.Encode(l)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.bus.Ports().Log.Publish(context.Background(), broker.Message{Subject: events.LaunchSubject("node-a", job), Data: data}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func member(slot, rank ident.Rank, id ident.Incarnation) events.LaunchMember {
	return events.LaunchMember{Member: tables.Member{
		Place: ident.Place{Node: "node-a", Slot: ident.Slot(slot)}, Attempt: 1, Rank: rank, Incarnation: id, LocalSize: 1, CrossSize: 1,
	}}
}

func (w *world) messages() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.received)
}

func (w *world) fact(kind string) events.Body {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.facts {
		if f.Type().Kind() == kind {
			return f
		}
	}
	w.t.Fatalf("no fact worker.%s; received %v", kind, w.received)
	return nil
}

// post calls the worker API like the worker with that number, or with -1 like another process.
func (w *world) post(method, path string, start int, body, into any) int {
	w.t.Helper()
	b, _ := json.Marshal(body)
	token := ""
	if start >= 0 {
		w.driver.mu.Lock()
		token = w.driver.starts[start].Env[workerprotocol.EnvToken]
		w.driver.mu.Unlock()
	}
	req, _ := http.NewRequest(method, "http://agent"+path, bytes.NewReader(b))
	req.Header.Set("Authorization", "Bearer "+token)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		w.pipes.conns <- theirs
		return ours, nil
	}}}
	r, err := c.Do(req)
	if err != nil {
		w.t.Error(err)
		return 0
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode == http.StatusOK && into != nil {
		if err := json.NewDecoder(r.Body).Decode(into); err != nil {
			w.t.Error(err)
		}
	}
	return r.StatusCode
}

func TestRestartJobFromLaunchToExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		spec := spec.Job{Command: []string{"fake", "run=5s", "exit=7", "lines=2"}}
		w.launch(events.Launch{Revision: 1, Phase: events.PhasePrepare, Generation: 1, Spec: spec, Members: []events.LaunchMember{member(0, -1, "")}})
		if len(w.joins) != 1 || !strings.HasPrefix(w.joins[0].Address, "10.0.0.1:") {
			t.Fatalf("joins %+v", w.joins)
		}
		w.launch(events.Launch{Revision: 2, Phase: events.PhaseRun, Generation: 1, World: 1, Spec: spec, Master: w.joins[0].Address, Members: []events.LaunchMember{member(0, 0, w.joins[0].Incarnation)}})
		ready := w.fact("ready").(events.WorkerReady)
		if ready.Generation != 1 || ready.Rank != 0 || ready.Agent != "01AGENT" {
			t.Errorf("ready %+v", ready)
		}
		time.Sleep(6 * time.Second) // virtual
		synctest.Wait()
		if x := w.fact("exited").(events.WorkerExited); x.ExitCode != 7 || x.Detail != "exit code 7" || x.Asked || len(x.Lines) != 2 {
			t.Errorf("exited %+v", x)
		}
		messages := w.messages()
		if slices.Index(messages, "notice") > slices.Index(messages, "exited") || !slices.Contains(messages, "hello") {
			t.Errorf("order %v", messages)
		}
		if last := w.beats[len(w.beats)-1]; last.Revisions[job] != 2 || len(w.beats) < 12 {
			t.Errorf("%d heartbeats, last %+v", len(w.beats), last)
		}
		if !slices.Equal(w.lines, []string{"[node-a r0 g1] line 1", "[node-a r0 g1] line 2"}) {
			t.Errorf("lines %q", w.lines)
		}
		m, err := w.bus.Ports().Log.Last(context.Background(), events.StreamLogs, events.LogSubject(job, "node-a", "0"))
		if err != nil || string(m.Data) != "line 1\nline 2\n" || m.Header[output.HeaderRank][0] != "0" {
			t.Errorf("log %q %v %v", m.Data, m.Header, err)
		}
		w.wait()
		if !slices.Contains(w.messages(), "bye") {
			t.Error("no goodbye")
		}
	})
}

// TestOneRequestForANode: the joins of a node's workers are sent in one request, and a worker that
// joins alone does not wait for long.
func TestOneRequestForANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		w.launch(events.Launch{Revision: 1, Phase: events.PhasePrepare, Generation: 1, Spec: spec.Job{Command: []string{"fake", "run=5s"}}, Members: []events.LaunchMember{
			member(0, -1, ""), member(1, -1, ""), member(2, -1, ""),
		}})
		if !slices.Equal(w.asked, []int{3}) {
			t.Errorf("requests with %v joins, want one with 3", w.asked)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		spec := spec.Job{Command: []string{"fake"}, Recovery: spec.RecoveryInProcess}
		w.launch(events.Launch{Revision: 1, Phase: events.PhasePrepare, Generation: 1, Spec: spec, Members: []events.LaunchMember{member(0, -1, ""), member(1, -1, "")}})
		began := time.Now()
		for i := range 2 {
			go w.post(http.MethodPost, workerprotocol.PathJoin, i, workerprotocol.JoinRequest{Address: "10.0.0.1:5"}, &workerprotocol.Assignment{})
			time.Sleep(100 * time.Millisecond) // virtual: the second one joins much later
			synctest.Wait()
		}
		if !slices.Equal(w.asked, []int{1, 1}) || time.Since(began) > time.Second {
			t.Errorf("requests with %v joins, want two with 1", w.asked)
		}
	})
}

func TestInProcessWorkerJoinsLosesAPeerAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		spec := spec.Job{Command: []string{"fake"}, Recovery: spec.RecoveryInProcess}
		w.launch(events.Launch{Revision: 1, Phase: events.PhasePrepare, Generation: 1, Spec: spec, Members: []events.LaunchMember{member(0, -1, "")}})
		var a workerprotocol.Assignment
		done := make(chan int, 1)
		go func() {
			done <- w.post(http.MethodPost, workerprotocol.PathJoin, 0, workerprotocol.JoinRequest{Address: "10.0.0.1:5"}, &a)
		}()
		synctest.Wait()
		w.launch(events.Launch{Revision: 2, Phase: events.PhaseRun, Generation: 1, World: 2, Spec: spec, Members: []events.LaunchMember{member(0, 0, w.joins[0].Incarnation)}})
		if code := <-done; code != 200 || a.Verdict != workerprotocol.Assigned || a.World != 2 {
			t.Fatalf("join: %d %+v", code, a)
		}
		var p workerprotocol.Peer
		if code := w.post(http.MethodGet, workerprotocol.PathPeers+"?generation=1&rank=1", 0, nil, &p); code != 200 || p.Address != "10.0.0.2:7" {
			t.Errorf("peer: %d %+v", code, p)
		}
		if code := w.post(http.MethodGet, workerprotocol.PathPeers+"?generation=1&rank=5", 0, nil, nil); code != 404 {
			t.Errorf("peer that is not there: %d", code)
		}
		w.post(http.MethodPost, workerprotocol.PathReport, 0, workerprotocol.Report{Generation: 1, Step: 3, First: &workerprotocol.FirstStep{StepMS: 2}}, nil)
		synctest.Wait()
		if r := w.fact("ready").(events.WorkerReady); r.Step != 3 {
			t.Errorf("ready %+v", r)
		}
		var c workerprotocol.Change
		go func() { done <- w.post(http.MethodGet, workerprotocol.PathChanges+"?generation=1", 0, nil, &c) }()
		synctest.Wait()
		n := events.Notice{Rank: 1}
		n.Exited.Job, n.Exited.Place.Node, n.Exited.Agent, n.Exited.Generation, n.Exited.Incarnation = job, "node-b", "01OTHER", 1, "01X"
		n.Exited.Detail = "exit code 1"
		b, _ := bodies.Encode(events.NoticeEnvelope{Notice: &n})
		if err := w.bus.Ports().Signals.Send(events.NoticeSubject(job), b); err != nil {
			t.Fatal(err)
		}
		if code := <-done; code != 200 || c.Kind != workerprotocol.ChangeLost || c.Rank != 1 {
			t.Errorf("change: %d %+v", code, c)
		}
		w.wait()
		if x := w.fact("exited").(events.WorkerExited); !x.Asked || x.Signal != "SIGTERM" {
			t.Errorf("exited %+v", x)
		}
	})
}

func TestFactsWaitForTheStoreAndKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.wait()
		w.bus.FailPublishes(func(subject string) (bool, error) {
			if strings.Contains(subject, ".evt.worker.") {
				return false, errcode.Errorf(errcode.Unavailable, "no leader")
			}
			return false, nil
		})
		w.launch(events.Launch{
			Revision: 1, Phase: events.PhasePrepare, Generation: 1, Members: []events.LaunchMember{member(0, -1, "")},
			Spec: spec.Job{Command: []string{"fake", "run=1s", "signal=SIGSEGV"}, Recovery: spec.RecoveryInProcess},
		})
		time.Sleep(20 * time.Second)
		if messages := w.messages(); !slices.Contains(messages, "notice") || slices.Contains(messages, "exited") {
			t.Fatalf("without the store: %v", messages)
		}
		w.bus.FailPublishes(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(w.facts) != 2 || w.facts[0].Type().Kind() != "started" {
			t.Fatalf("facts %+v", w.facts)
		}
		if x := w.fact("exited").(events.WorkerExited); x.AgeMS < 19000 || x.Detail != "killed by signal 11 (SIGSEGV)" {
			t.Errorf("exited %+v", x)
		}
	})
}

func TestEndKillsAfterTheGraceAndLeftoversArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, worker.Orphaned{Job: job, Place: ident.Place{Node: "node-a", Slot: 1}, Attempt: 1, Worker: "01OLD", PID: 5})
		if x := w.fact("exited").(events.WorkerExited); x.Incarnation != "01OLD" {
			t.Errorf("exited %+v", x)
		}
		w.launch(events.Launch{
			Revision: 1, Phase: events.PhasePrepare, Generation: 1, Members: []events.LaunchMember{member(0, -1, "")},
			Spec: spec.Job{Command: []string{"fake", "ignore-term"}, Recovery: spec.RecoveryInProcess, Stop: spec.Stop{Grace: spec.Duration(3 * time.Second)}},
		})
		from := time.Now()
		w.wait()
		if d := time.Since(from); d < 3*time.Second || d > 4*time.Second {
			t.Errorf("the end took %s", d)
		}
		if x := w.facts[len(w.facts)-1].(events.WorkerExited); x.Signal != "SIGKILL" || !x.Asked {
			t.Errorf("exited %+v", x)
		}
	})
}
