package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/agent/statedir"
	"github.com/regroup-io/regroup/agent/submitenv"
	"github.com/regroup-io/regroup/agent/workerapi"
	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has the sockets of agents, a registry, and what both were sent.
type machine struct {
	t             *testing.T
	w             commandtest.World
	state, server string

	mu    sync.Mutex
	given []string // to agents
	env   wire.SubmitEnvironment
	job   spec.Job // submitted last
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, w: commandtest.New(t), state: t.TempDir()}
	m.w.Answer(func(e events.Event) {
		s := e.Body.(events.JobSubmit).Spec
		m.mu.Lock()
		m.job = s
		m.mu.Unlock()
		job := ident.JobIDFrom(s.Name, e.Source, e.ID)
		if s.Name == "refused" {
			m.w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobRejected{Job: job, Command: e.ID, Errors: []spec.FieldError{{Message: "it is refused"}}}})
			return
		}
		m.w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobSubmitted{Job: job, Spec: s}})
	})
	return m
}

// node makes a node known; its agent is elsewhere.
func (m *machine) node(name ident.NodeID) {
	m.w.Put(events.BucketNodes, string(name), events.NodeView{Node: name, Incarnation: ident.Incarnation("01" + name), State: events.NodeStateReady, Slots: 1})
}

// agent makes a node known whose agent is here and answers with an error, or nil.
func (m *machine) agent(name ident.NodeID, answer error) {
	m.t.Helper()
	m.node(name)
	s, err := workerapi.New(workerapi.Options{Socket: statedir.Socket(statedir.Of(m.state, string(name))), Calls: workerapi.Calls{
		Join: func(string, wire.JoinRequest) {}, Report: func(string, wire.Report) {}, Commit: func(string, wire.CommitReport) {}, Done: func(string, wire.DoneReport) {},
		Preempt: func(wire.PreemptRequest) {}, Peer: func(context.Context, string, uint64, int) (wire.Peer, error) { return wire.Peer{}, nil },
		Environment: func(e wire.SubmitEnvironment) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			what := "given"
			if e.Dir == "" {
				what = "withdrawn"
			} else {
				m.env = e
			}
			m.given = append(m.given, fmt.Sprintf("%s %s", name, what))
			return answer
		},
	}})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(ready) }) }()
	<-ready
	m.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	})
}

// submit submits a job and returns its id, what was said, and what the agents were sent.
func (m *machine) submit(job spec.Job) (ident.JobID, string, string, error) {
	job.Command = []string{"train"}
	if job.Rendezvous == nil {
		job.Workers = spec.Workers{Min: 1, Max: 1}
	}
	var printed []string
	id, err := submit(m.t.Context(), cluster.New(m.w.Ports, "/client/ada"), boot.Config{StateDir: m.state, Server: m.server}, job, func(text string) { printed = append(printed, text) })
	m.mu.Lock()
	defer m.mu.Unlock()
	given := m.given
	m.given = nil
	return id, strings.Join(printed, "\n"), strings.Join(given, ", "), err
}

// TestAgentsHereAreGivenTheEnvironment, for the job that is submitted then, and the job has its
// name and nothing of it.
func TestAgentsHereAreGivenTheEnvironment(t *testing.T) {
	t.Setenv("HF_HOME", "/home/ada\xff")
	t.Setenv("REGROUP_SECRET", "hidden")
	m := newMachine(t)
	m.agent("a", nil)
	m.agent("b", nil)
	m.w.Put(events.BucketNodes, "c", events.NodeView{Node: "c", State: events.NodeStateLost, Slots: 1})
	m.w.Put(events.BucketNodes, "d", events.NodeView{Node: "d", State: events.NodeStateReady}) // of a job that comes by itself
	id, printed, given, err := m.submit(spec.Job{Name: "mnist", Processes: spec.Processes{SubmitEnvironment: strings.Repeat("0", 32)}})
	if err != nil || printed != "" || given != "a given, b given" {
		t.Fatalf("%v; said %q; agents: %s", err, printed, given)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	here, err := submitenv.Identify(dir)
	if err != nil {
		t.Fatal(err)
	}
	e := m.env
	if e.Dir != dir || e.DirID != here || e.Root == (wire.FileID{}) || e.Agent != "01b" || e.Name != "mnist" {
		t.Errorf("given %+v", e)
	}
	if !slices.Contains(ident.JobIDsOf(e.Name, e.Origin), id) || m.job.Processes.SubmitEnvironment != e.Origin {
		t.Errorf("the job is %s with the environment %q; the environment is for %v", id, m.job.Processes.SubmitEnvironment, ident.JobIDsOf(e.Name, e.Origin))
	}
	has := func(v string) bool {
		return slices.ContainsFunc(e.Variables, func(b []byte) bool { return string(b) == v })
	}
	if !has("HF_HOME=/home/ada\xff") || has("REGROUP_SECRET=hidden") {
		t.Errorf("given the variables %q", e.Variables)
	}
}

// TestAnAgentIsFoundInALongStateFolder, where its socket is elsewhere.
func TestAnAgentIsFoundInALongStateFolder(t *testing.T) {
	m := newMachine(t)
	m.state = filepath.Join(m.state, strings.Repeat("d", 120))
	m.agent("a", nil)
	if _, printed, given, err := m.submit(spec.Job{Name: "mnist"}); err != nil || printed != "" || given != "a given" {
		t.Errorf("%v; said %q; agents: %s", err, printed, given)
	}
}

// TestAllWorkersAreAlike: if one agent is elsewhere, or refuses, no worker inherits the environment
// of the command, and one line says what they have.
func TestAllWorkersAreAlike(t *testing.T) {
	const there = "in the folder, as the user and with the environment of the agent there, not of this command"
	for name, c := range map[string]struct {
		agents       func(*machine)
		job          spec.Job
		printed, got string
	}{
		"elsewhere": {
			func(m *machine) { m.agent("a", nil); m.node("b") },
			spec.Job{},
			"workers run on a, b " + there + " (the agent of b is not on this machine, or of another user or state folder); --workdir and --env change that", "a given, a withdrawn",
		},
		"refused": {
			func(m *machine) {
				m.agent("a", nil)
				m.agent("b", &workerapi.Refusal{Status: 409, Code: "conflict", Message: "the agent of b sees another /, as in a container"})
			},
			spec.Job{},
			"workers run on a, b " + there + " (the agent of b sees another /, as in a container); --workdir and --env change that", "a given, b given, a withdrawn",
		},
		"with its own folder": {
			func(m *machine) { m.node("b") },
			spec.Job{Workdir: "/data"},
			"workers run on b in /data, as the user and with the environment of the agent there, not of this command (the agent of b is not on this machine, or of another user or state folder); --env changes that", "",
		},
		"as another user": {
			func(m *machine) {
				m.agent("a", &workerapi.Refusal{Status: 409, Code: "conflict", Message: "workers run as eve on a"})
			},
			spec.Job{Processes: spec.Processes{User: "eve"}},
			"workers run on a as eve, in the folder and with the environment that the agent there has for that user, not of this command (workers run as eve on a); --workdir and --env change that", "a given",
		},
		"as another user in its own folder": {
			func(m *machine) { m.node("a"); m.node("b"); m.node("c"); m.node("d") },
			spec.Job{Workdir: "/data", Processes: spec.Processes{User: "eve"}},
			"workers run on 4 nodes in /data, as eve and with the environment of the agent there, not of this command (the agent of a is not on this machine, or of another user or state folder); --env changes that", "",
		},
		"nobody is there": {
			func(*machine) {},
			spec.Job{},
			"workers run on the nodes of the server " + there + " (the server has no node yet); --workdir and --env change that", "",
		},
		"comes by itself": {func(m *machine) { m.node("a") }, spec.Job{Rendezvous: &spec.Rendezvous{Nodes: spec.NodeRange{Min: 1, Max: 1}}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.agents(m)
			c.job.Name = "mnist"
			_, printed, given, err := m.submit(c.job)
			if err != nil || printed != c.printed || given != c.got || m.job.Processes.SubmitEnvironment != "" {
				t.Errorf("%v; said\n%s\nwant\n%s\nagents: %q, want %q; the job has the environment %q", err, printed, c.printed, given, c.got, m.job.Processes.SubmitEnvironment)
			}
		})
	}
}

// TestNodesOfAServerAreReadIfOneMayBeHere: else it is said without them.
func TestNodesOfAServerAreReadIfOneMayBeHere(t *testing.T) {
	m := newMachine(t)
	m.server = "nats://broker:4222"
	const none = "workers run on the nodes of the server in the folder, as the user and with the environment of the agent there, not of this command (no agent of this user and state folder runs on this machine); --workdir and --env change that"
	m.node("a")
	if _, printed, _, err := m.submit(spec.Job{Name: "mnist"}); err != nil || printed != none {
		t.Errorf("%v; said %s", err, printed)
	}
	m.agent("a", nil)
	unlock, err := statedir.Lock(statedir.Of(m.state, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, printed, given, err := m.submit(spec.Job{Name: "mnist"}); err != nil || printed != "" || given != "a given" {
		t.Errorf("%v; said %q; agents: %s", err, printed, given)
	}
	unlock()
	if _, printed, _, err := m.submit(spec.Job{Name: "mnist"}); err != nil || printed != none {
		t.Errorf("once that agent has ended: %v; said %s", err, printed)
	}
}

// TestARefusedJobLeavesNoEnvironment with the agents.
func TestARefusedJobLeavesNoEnvironment(t *testing.T) {
	m := newMachine(t)
	m.agent("a", nil)
	if _, printed, given, err := m.submit(spec.Job{Name: "refused"}); err == nil || printed != "" || given != "a given, a withdrawn" {
		t.Errorf("%v; said %q; agents: %s", err, printed, given)
	}
}

// TestASocketOfAnotherUserGetsNothing: who listens would learn what is in the environment.
func TestASocketOfAnotherUserGetsNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test has a socket of another user: run it as root, as those of the network")
	}
	m := newMachine(t)
	m.node("a")
	socket := statedir.Socket(statedir.Of(m.state, "a"))
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := listenAs(socket, 54321)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			seen <- []byte(err.Error())
			return
		}
		b := make([]byte, 100)
		n, _ := conn.Read(b)
		seen <- b[:n]
		_ = conn.Close()
	}()
	_, printed, _, err := m.submit(spec.Job{Name: "mnist"})
	if err != nil || !strings.Contains(printed, "(the agent of a: it is of user 54321, and this command of user 0)") {
		t.Fatalf("%v; said %q", err, printed)
	}
	if b := <-seen; len(b) > 0 {
		t.Errorf("it was sent %q", b)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
