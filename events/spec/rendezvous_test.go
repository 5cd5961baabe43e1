package spec

import (
	"strings"
	"testing"
	"time"
)

func external() Job {
	return Job{Name: "mnist", Command: []string{"x"}, Rendezvous: &Rendezvous{External: true, Nodes: NodeRange{2, 4}, WorkersPerNode: 8}}
}

// TestRendezvousDefaults: TorchElastic's, and the workers follow from the nodes.
func TestRendezvousDefaults(t *testing.T) {
	given := external()
	s := given.WithDefaults()
	want := Rendezvous{
		External: true, Nodes: NodeRange{2, 4}, WorkersPerNode: 8, JoinTimeout: Duration(600 * time.Second), LastCallTimeout: Duration(30 * time.Second),
		CloseTimeout: Duration(30 * time.Second), KeepAliveInterval: Duration(5 * time.Second), KeepAliveMaxAttempt: 3, HeartbeatTimeout: Duration(5 * time.Second),
	}
	if *s.Rendezvous != want || s.Workers != (Workers{16, 32}) || s.Rendezvous.KeepAlive() != 15*time.Second {
		t.Errorf("got %+v and workers %+v, want %+v and 16:32", *s.Rendezvous, s.Workers, want)
	}
	if given.Rendezvous.JoinTimeout != 0 {
		t.Error("defaults were filled into another spec")
	}
	if bad := s.Check(); len(bad) > 0 {
		t.Error(bad)
	}
}

func TestRendezvousReportsAllErrors(t *testing.T) {
	const text = `{"name":"a","command":["x"],"workers":{"min":3,"max":3},"rendezvous":{"external":false,"nodes":{"min":2,"max":1},` +
		`"workersPerNode":-1,"joinTimeout":"-1s","lastCallTimeout":"-1s","closeTimeout":"-1s","keepAliveInterval":"-1s","keepAliveMaxAttempt":-1,` +
		`"heartbeatTimeout":"-1s","polls":true}}`
	_, bad := Parse([]byte(text))
	var all []string
	for _, f := range bad {
		all = append(all, f.String())
	}
	said := strings.Join(all, "\n")
	for _, want := range []string{
		"rendezvous.external: is false", "rendezvous.nodes.max: is 1", "rendezvous.workersPerNode: is -1", "rendezvous.joinTimeout: \"-1s\" is not more than 0",
		"rendezvous.lastCallTimeout: \"-1s\" is not more than 0", "rendezvous.closeTimeout: \"-1s\" is not more than 0", "rendezvous.keepAliveInterval: \"-1s\" is not more than 0",
		"rendezvous.keepAliveMaxAttempt: is -1", "rendezvous.heartbeatTimeout: \"-1s\" is not more than 0", "rendezvous.polls",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("not found: %s\nin\n%s", want, said)
		}
	}
	s := external()
	s.Workers = Workers{1, 2}
	if bad := s.WithDefaults().Check(); len(bad) != 1 || bad[0].Path != "workers" {
		t.Errorf("workers and nodes: %v, want one error", bad)
	}
}

// TestDiffers: every field of a job is compared and named.
func TestDiffers(t *testing.T) {
	a := external().WithDefaults()
	if bad := a.Differs(external().WithDefaults()); bad != nil {
		t.Errorf("the same differs: %v", bad)
	}
	for path, change := range map[string]func(*Job){
		"name":                           func(s *Job) { s.Name = "other" },
		"command":                        func(s *Job) { s.Command = []string{"x", "-lr=1"} },
		"workdir":                        func(s *Job) { s.Workdir = "/srv" },
		"env":                            func(s *Job) { s.Env = map[string]string{"A": "1"} },
		"recovery":                       func(s *Job) { s.Recovery = RecoveryInProcess },
		"rendezvous.nodes":               func(s *Job) { s.Rendezvous.Nodes.Max = 5 },
		"rendezvous.workersPerNode":      func(s *Job) { s.Rendezvous.WorkersPerNode = 1 },
		"rendezvous.joinTimeout":         func(s *Job) { s.Rendezvous.JoinTimeout = 1 },
		"rendezvous.lastCallTimeout":     func(s *Job) { s.Rendezvous.LastCallTimeout = 1 },
		"rendezvous.closeTimeout":        func(s *Job) { s.Rendezvous.CloseTimeout = 1 },
		"rendezvous.keepAliveInterval":   func(s *Job) { s.Rendezvous.KeepAliveInterval = 1 },
		"rendezvous.keepAliveMaxAttempt": func(s *Job) { s.Rendezvous.KeepAliveMaxAttempt = 1 },
		"rendezvous.heartbeatTimeout":    func(s *Job) { s.Rendezvous.HeartbeatTimeout = 1 },
		"failures":                       func(s *Job) { s.Failures.Per = 1 },
		"elastic":                        func(s *Job) { s.Elastic.Settle = 1 },
		"health":                         func(s *Job) { s.Health.Hang = 1 },
		"stop":                           func(s *Job) { s.Stop.Signal = "SIGINT" },
		"data":                           func(s *Job) { s.Data.Samples = 1 },
		"labels":                         func(s *Job) { s.Labels = map[string]string{"a": "b"} },
	} {
		b := external().WithDefaults()
		change(&b)
		if bad := a.Differs(b); len(bad) != 1 || bad[0].Path != path {
			t.Errorf("%s: got %v", path, bad)
		}
	}
}
