package discovery_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/discovery"
)

// trouble collects the errors that a replica reports.
type trouble struct {
	mu    sync.Mutex
	lines []string
}

func (r *trouble) observe(o controller.Observation) {
	if o.Err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, o.Err.Error())
	}
}

func (r *trouble) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := strings.Join(r.lines, "\n")
	r.lines = nil
	return out
}

// startWith runs a replica with a host list inside a synctest bubble.
func startWith(t *testing.T, p broker.Ports, h discovery.HostConfig, observe func(controller.Observation)) (stop func()) {
	t.Helper()
	c := discovery.DefaultConfig()
	h.HostEvery, h.HostWithin = c.HostEvery, c.HostWithin
	c.HostConfig = h
	s, err := discovery.New(p, c, observe)
	if err != nil {
		t.Fatal(err)
	}
	return controllertest.Start(t, s.Run)
}

// offered formats the usable slots of every node: "node-a 2, node-b no: why".
func offered(t *testing.T, p broker.Ports, nodes ...string) string {
	t.Helper()
	var out []string
	for _, n := range nodes {
		v := controllertest.View[events.NodeView](t, p, events.BucketNodes, n)
		if v.Excluded != "" {
			out = append(out, n+" no: "+v.Excluded)
		} else {
			out = append(out, n+" "+string(rune('0'+v.AllocatableSlots())))
		}
	}
	return strings.Join(out, ", ")
}

func wantOffered(t *testing.T, p broker.Ports, want string) {
	t.Helper()
	if got := offered(t, p, "node-a", "node-b"); got != want {
		t.Errorf("offered %q, want %q", got, want)
	}
}

// write replaces a file as a whole: one that is read meanwhile is the old or the new one.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// publishedSlots formats every node fact with its slots, node by node: two nodes are handled at the
// same time.
func publishedSlots(t *testing.T, p broker.Ports) string {
	facts := strings.Split(nodeFacts(t, p), ", ")
	slices.SortStableFunc(facts, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0])
	})
	return strings.Join(facts, ", ")
}

func nodeFacts(t *testing.T, p broker.Ports) string {
	t.Helper()
	synctest.Wait()
	return controllertest.Facts(t, p, func(e events.Event) string {
		var f events.NodeFact
		switch b := e.Body.(type) {
		case events.NodeJoined:
			f = b.NodeFact
		case events.NodeChanged:
			f = b.NodeFact
		}
		text := e.Entity + " " + e.Body.Type().Kind() + " " + string(rune('0'+f.Slots))
		if f.Excluded != "" {
			text += "!"
		}
		return text
	})
}

func TestHostFileSelectsNodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "node-a:1\n")
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		var r trouble
		stopA := startWith(t, bus.Client().Ports(), discovery.HostConfig{HostFile: file}, r.observe)
		stopB := startWith(t, bus.Client().Ports(), discovery.HostConfig{HostFile: file}, nil)
		synctest.Wait()
		beatA, pongA := agent(t, p, "node-a", "A")
		beatB, pongB := agent(t, p, "node-b", "A")
		// Both replicas read the file at each full second. It changes between two of these:
		// otherwise one might have read the old text, and the other the new one.
		time.Sleep(10500 * time.Millisecond)
		wantOffered(t, p, "node-a 1, node-b no: no line of "+file+" names it")

		write(t, file, "node-b\nnode-a:9 # more than it has\n")
		time.Sleep(1100 * time.Millisecond)
		wantOffered(t, p, "node-a 2, node-b 2")

		// An invalid or missing answer changes nothing; it is reported once, with every error.
		write(t, file, "node-b:x\nnode-b::\n")
		time.Sleep(10 * time.Second)
		wantOffered(t, p, "node-a 2, node-b 2")
		if got := r.take(); strings.Count(got, "\n") != 0 || !strings.Contains(got, "line 1: ") || !strings.Contains(got, "line 2: ") || !strings.Contains(got, "the last good answer stands") {
			t.Errorf("reported %q", got)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantOffered(t, p, "node-a 2, node-b 2")

		// An empty list is valid: no node may be used. Running work moves away as planned; nothing
		// is lost.
		write(t, file, "# nobody\n")
		time.Sleep(1100 * time.Millisecond)
		no := file + " names no host"
		wantOffered(t, p, "node-a no: "+no+", node-b no: "+no)
		if got := publishedSlots(t, p); got != "node-a joined 1, node-a changed 2, node-a changed 2!, node-b joined 2!, node-b changed 2, node-b changed 2!" {
			t.Errorf("published %s", got)
		}
		for _, stop := range []func(){beatA, pongA, beatB, pongB, stopA, stopB} {
			stop()
		}

		// Without a list every node may be used again.
		stop := start(t, bus.Client().Ports())
		time.Sleep(time.Second)
		wantOffered(t, p, "node-a 2, node-b 2")
		stop()
	})
}

// TestFirstAnswerIsAwaited: until then no new node is admitted; recorded ones keep their state,
// even if every replica restarts.
func TestFirstAnswerIsAwaited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "node-a:1\n")
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		var r trouble
		stop := startWith(t, bus.Client().Ports(), discovery.HostConfig{HostFile: file}, nil)
		synctest.Wait()
		beatA, pongA := agent(t, p, "node-a", "A")
		time.Sleep(time.Second)
		stop()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		stop = startWith(t, bus.Client().Ports(), discovery.HostConfig{HostFile: file}, r.observe)
		time.Sleep(time.Second)
		beatB, pongB := agent(t, p, "node-b", "A")
		time.Sleep(10 * time.Second)
		wantOffered(t, p, "node-a 1, node-b no: the list of hosts is not known yet")
		if got := r.take(); !strings.Contains(got, "no such file") || !strings.Contains(got, "no node is let in until it answers") {
			t.Errorf("reported %q", got)
		}
		write(t, file, "node-a:1\nnode-b:1")
		time.Sleep(1100 * time.Millisecond)
		wantOffered(t, p, "node-a 1, node-b 1")
		for _, stop := range []func(){beatA, pongA, beatB, pongB, stop} {
			stop()
		}
	})
}

// TestNewIncarnationIsLookedUpWithItsHello: a node that was taken off the list and returns as a new
// incarnation is looked up in the step that admits it.
func TestNewIncarnationIsLookedUpWithItsHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := startWith(t, bus.Client().Ports(), discovery.HostConfig{Hosts: "10.0.0.1:1"}, nil) // by its address
		synctest.Wait()
		hello(t, p, "node-a", "A")
		hello(t, p, "node-a", "B")
		time.Sleep(time.Second)
		if got := publishedSlots(t, p); got != "node-a joined 1, node-a lost 0, node-a joined 1" {
			t.Errorf("published %s", got)
		}
		stop()
	})
}

func TestOneSourceAtMost(t *testing.T) {
	c := discovery.DefaultConfig()
	c.Hosts, c.HostFile, c.HostEvery, c.PerHost = "a:1", "hosts", 0, -1
	err := c.Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), "hosts and host file are given") {
		t.Errorf("got %v, want three faults", err)
	}
	c = discovery.DefaultConfig()
	c.Hosts = "a,a"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "names the same host") {
		t.Errorf("got %v", err)
	}
}

// TestHostDiscoveryScript runs scripts as real processes in real time.
func TestHostDiscoveryScript(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string { return hostScript(t, filepath.Join(dir, name), text) }
	for _, c := range []struct {
		name, script, want string // want: hosts, or part of the error
	}{
		{"answers", script("ok", "echo node-b:4; echo; echo node-a"), "2 hosts"},
		{"has arguments", script("args", "echo $1; echo $2") + " x y", "2 hosts"},
		{"says nothing", script("empty", "exit 0"), "0 hosts"},
		{"fails", script("fails", "echo node-a; echo no route to the cloud >&2; echo more >&2; exit 3"), "exit status 3: no route to the cloud"},
		{"is not there", filepath.Join(dir, "nosuch"), "no such file"},
		{"says rubbish", script("rubbish", "echo '<html>'"), "its answer: line 1: "},
		{"says far too much", script("long", "head -c 3000000 /dev/zero | tr '\\0' a"), "more than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			h, err := discovery.HostConfig{HostScript: c.script, HostWithin: time.Minute}.Ask(t.Context())
			got := strings.Join([]string{string(rune('0' + len(h.Lines))), "hosts"}, " ")
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// hostScript writes a script, and returns its path.
func hostScript(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	return path
}

// TestHostDiscoveryScriptThatHangs is killed with its child. On a busy machine it may be killed
// before it has one; it then gets more time.
func TestHostDiscoveryScriptThatHangs(t *testing.T) {
	dir := t.TempDir()
	leader := filepath.Join(dir, "leader")
	script := hostScript(t, filepath.Join(dir, "hangs"), "(echo $$ >"+leader+"; exec sleep 600) & exec sleep 600")
	group := 0
	for within := 300 * time.Millisecond; group == 0; within *= 2 {
		if within > time.Minute {
			t.Fatal("it has never started its child")
		}
		began := time.Now()
		_, err := discovery.HostConfig{HostScript: script, HostWithin: within}.Ask(t.Context())
		if want := fmt.Sprintf("no answer within %s", within); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v, want %s", err, want)
		}
		if took := time.Since(began); took > within+20*time.Second {
			t.Errorf("it took %s", took)
		}
		raw, _ := os.ReadFile(leader) // it may not have been written
		group, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
	}
	for deadline := time.Now().Add(time.Minute); !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH); {
		if time.Now().After(deadline) {
			t.Fatal("what the script has started outlives it")
		}
		runtime.Gosched()
	}
}

// TestNodesHaveTheOrderOfTheList: the facts of nodes carry it, and a change of the order is
// published.
func TestNodesHaveTheOrderOfTheList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	write(t, file, "node-b:2\nnode-a:2\n")
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := startWith(t, bus.Client().Ports(), discovery.HostConfig{HostFile: file}, nil)
		synctest.Wait()
		beatA, pongA := agent(t, p, "node-a", "A")
		beatB, pongB := agent(t, p, "node-b", "A")
		defer func() {
			for _, end := range []func(){beatA, pongA, beatB, pongB, stop} {
				end()
			}
		}()
		published := func() string {
			return controllertest.Facts(t, p, func(e events.Event) string {
				switch b := e.Body.(type) {
				case events.NodeJoined:
					return e.Entity + " " + string(rune('0'+b.Order))
				case events.NodeChanged:
					return e.Entity + " changed " + string(rune('0'+b.Order))
				}
				return "?"
			})
		}
		time.Sleep(10 * time.Second)
		if got := published(); got != "node-a 2, node-b 1" {
			t.Errorf("published %q", got)
		}
		write(t, file, "node-a:2\nnode-b:2\n")
		time.Sleep(20 * time.Second)
		if got := published(); got != "node-a 2, node-b 1, node-a changed 1, node-b changed 2" {
			t.Errorf("published %q", got)
		}
	})
}
