package spec

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func selfRegistered() Job {
	return Job{Name: "mnist", Command: []string{"x"}, Rendezvous: &Rendezvous{Nodes: NodeRange{2, 4}, WorkersPerNode: 8}}
}

// TestRendezvousDefaults: TorchElastic's, and the workers follow from the nodes.
func TestRendezvousDefaults(t *testing.T) {
	given := selfRegistered()
	s := given.WithDefaults()
	want := Rendezvous{
		Nodes: NodeRange{2, 4}, WorkersPerNode: 8, JoinTimeout: Duration(600 * time.Second), LastCallTimeout: Duration(30 * time.Second),
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
	const text = `{"name":"a","command":["x"],"workers":{"min":3,"max":3},"rendezvous":{"nodes":{"min":2,"max":1},` +
		`"workersPerNode":-1,"joinTimeout":"-1s","lastCallTimeout":"-1s","closeTimeout":"-1s","keepAliveInterval":"-1s","keepAliveMaxAttempt":-1,` +
		`"heartbeatTimeout":"-1s","polls":true}}`
	_, bad := Parse([]byte(text))
	var all []string
	for _, f := range bad {
		all = append(all, f.String())
	}
	findings := strings.Join(all, "\n")
	for _, want := range []string{
		"rendezvous.nodes.max: is 1", "rendezvous.workersPerNode: is -1", "rendezvous.joinTimeout: \"-1s\" is not more than 0",
		"rendezvous.lastCallTimeout: \"-1s\" is not more than 0", "rendezvous.closeTimeout: \"-1s\" is not more than 0", "rendezvous.keepAliveInterval: \"-1s\" is not more than 0",
		"rendezvous.keepAliveMaxAttempt: is -1", "rendezvous.heartbeatTimeout: \"-1s\" is not more than 0", "rendezvous.polls",
	} {
		if !strings.Contains(findings, want) {
			t.Errorf("not found: %s\nin\n%s", want, findings)
		}
	}
	s := selfRegistered()
	s.Workers = Workers{1, 2}
	if bad := s.WithDefaults().Check(); len(bad) != 1 || bad[0].Path != "workers" {
		t.Errorf("workers and nodes: %v, want one error", bad)
	}
	s = selfRegistered()
	s.Elastic.MultipleOf = 3
	if bad := s.WithDefaults().Check(); len(bad) != 1 || bad[0].Path != "elastic.multipleOf" || !strings.Contains(bad[0].Message, "leave it out") {
		t.Errorf("multiples and nodes: %v, want one error", bad)
	}
	if s.Elastic.MultipleOf = 1; len(s.WithDefaults().Check()) > 0 {
		t.Error("a multiple of 1 is any number, and was refused")
	}
}

// TestDiffers: every field of a job is compared and named.
func TestDiffers(t *testing.T) {
	a := selfRegistered().WithDefaults()
	if bad := a.Differs(selfRegistered().WithDefaults()); bad != nil {
		t.Errorf("the same differs: %v", bad)
	}
	a.GPU = &GPU{} // which such a job must not have, but its fields are compared all the same
	for i := range rules {
		r := &rules[i]
		if strings.HasPrefix(r.path, "workers.") {
			continue
		}
		b := selfRegistered().WithDefaults()
		b.GPU = &GPU{}
		v := r.value(&b)
		if v.Kind() == reflect.Pointer {
			v.Set(reflect.New(r.kind))
			v = v.Elem()
		}
		switch {
		case v.Kind() == reflect.String:
			v.SetString("other")
		case v.Kind() == reflect.Slice:
			v.Set(reflect.ValueOf([]string{"x", "-lr=1"}))
		case v.Kind() == reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"A": "1"}))
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.CanFloat():
			v.SetFloat(77)
		case v.CanUint():
			v.SetUint(77)
		default:
			v.SetInt(77)
		}
		if bad := a.Differs(b); len(bad) != 1 || bad[0].Path != r.path {
			t.Errorf("%s: got %v", r.path, bad)
		}
	}
	placed := selfRegistered()
	placed.Rendezvous = nil
	if bad := a.Differs(placed.WithDefaults()); len(bad) == 0 {
		t.Error("a job without self-registered nodes is the same")
	}
}
