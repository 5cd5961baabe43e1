package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shown(name string, state events.NodeState) events.NodeView {
	return events.NodeView{
		Node: ident.NodeID(name), Incarnation: "01J", State: state, Slots: 4, Address: "10.0.0.1", Version: "1.3",
		Since: clustertest.Now.Add(-90 * time.Second),
	}
}

func world(t *testing.T) commandtest.World {
	w := commandtest.New(t)
	lost, drained := shown("node-c", events.NodeStateLost), shown("node-b", events.NodeStateReady)
	lost.Reason, drained.Draining, drained.Reason = "silent for 2.1s", true, "new disk"
	out, list := shown("node-d", events.NodeStateReady), shown("node-e", events.NodeStateReady)
	since := clustertest.Now.Add(-20 * time.Second)
	out.Quarantine = &events.Quarantine{Since: since, Until: since.Add(200 * time.Second), Reason: "slots 1, 3 are quarantined", Count: 2}
	out.QuarantinedSlots = []events.QuarantinedSlot{
		{Slot: 1, Quarantine: events.Quarantine{Since: since, Until: since.Add(time.Minute), Reason: "3 failures within 10m, the last: exit code 1 of a-0001", Count: 1}},
		{Slot: 3, Quarantine: events.Quarantine{Since: since, Until: since.Add(time.Hour), Reason: "by hand: bad GPU", ByHand: true}},
	}
	half := shown("node-f", events.NodeStateReady)
	two := 2
	half.Cap, half.QuarantinedSlots = &two, out.QuarantinedSlots[:1]
	list.Excluded = "no line of hosts.txt names it"
	h100 := devices.GPU{ID: "GPU-a", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}
	lost.GPUs, half.GPUs = []devices.GPU{h100, h100, h100, h100}, []devices.GPU{h100, {ID: "1"}}
	for _, n := range []events.NodeView{shown("node-a", events.NodeStateReady), drained, lost, out, list, half} {
		w.Put(events.BucketNodes, string(n.Node), n)
	}
	w.Put(events.BucketPlacements, events.PoolKey, events.PoolView{Jobs: map[ident.JobID]events.PlacementView{
		"a-0001": {Places: []ident.Place{{Node: "node-a"}, {Node: "node-a", Slot: 1}, {Node: "node-b"}}},
		"b-0002": {Places: []ident.Place{{Node: "node-a", Slot: 2}}},
	}})
	return w
}

// TestNodesOfNobody: nodes that no discovery looks after are listed as it has left them, which is
// said.
func TestNodesOfNobody(t *testing.T) {
	w := commandtest.New(t)
	w.Put(events.BucketNodes, "node-a", events.NodeView{Node: "node-a", State: events.NodeStateReady, Slots: 2, Since: clustertest.Now.Add(-time.Minute)})
	w.Answering(events.ProgressAnswer{}, events.ServiceRegistry, events.ServiceScheduler)
	const want = "regroup: no discovery, no rendezvous answers: state as they left it\n"
	if o := run(t, w, "ls"); o.Exit != 0 || o.Err != want || !strings.Contains(o.Out, "node-a  ready") {
		t.Errorf("%+v, want %q", o, want)
	}
}

func run(t *testing.T, w commandtest.World, args ...string) commandtest.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return w.Run(ctx, "", func(e command.Env) []*cobra.Command { return []*cobra.Command{Command(e)} }, append([]string{"node"}, args...)...)
}

func TestList(t *testing.T) {
	w := world(t)
	w.Answering(events.ProgressAnswer{}, events.ServiceDiscovery)
	for file, args := range map[string][]string{
		"ls.txt": {"ls"}, "ls_wide.txt": {"ls", "-o", "wide"}, "ls_name.txt": {"ls", "-o", "name"}, "ls.json": {"ls", "-o", "json"},
	} {
		o := run(t, w, args...)
		if o.Exit != 0 || o.Err != "" {
			t.Errorf("%s: %+v", file, o)
		}
		golden.Compare(t, "testdata/"+file, o.Out)
	}
	if o := run(t, commandtest.New(t), "ls"); o.Exit != 0 || o.Out != "" || !strings.Contains(o.Err, "no nodes") {
		t.Errorf("no nodes: %+v", o)
	}
}

func TestDrain(t *testing.T) {
	w := world(t)
	w.Answer(func(e events.Event) {
		d := e.Body.(events.NodeDrain)
		if d.Node == "node-c" {
			w.Publish(events.Event{Entity: "node-c", Body: events.NodeRejected{Command: "another", Errors: []spec.FieldError{{Message: "not this"}}}})
			w.Publish(events.Event{Entity: "node-c", Cause: e.ID, Body: events.NodeRejected{
				Node: "node-c", Command: e.ID, Code: errcode.NotFound, Errors: []spec.FieldError{{Message: "there is no node node-c"}},
			}})
			return
		}
		n := shown(string(d.Node), events.NodeStateReady)
		n.Draining, n.Reason = !d.Undo, d.Reason
		w.Put(events.BucketNodes, string(d.Node), n)
	})
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"drain", "node-a", "--reason", "disk"}, 0, "node-a is draining\n"},
		{[]string{"drain", "node-a"}, 0, "node-a is so already: nothing to do\n"},
		{[]string{"drain", "node-a", "--undo"}, 0, "node-a takes work again\n"},
		{[]string{"drain", "node-c"}, 3, "there is no node node-c\n"},
		{[]string{"drain", "nod-a"}, 3, "there is no node \"nod-a\": did you mean \"node-a\"?\n"},
		{[]string{"drain", "node"}, 2, "\"node\" is the beginning of 6 nodes: node-a, node-b, node-c, node-d, node-e, node-f\n"},
		{[]string{"drian", "node-a"}, 2, "there is no regroup node drian: did you mean \"drain\"?\n"},
	} {
		if o := run(t, w, c.args...); o.Exit != c.exit || o.Err != c.want || o.Out != "" {
			t.Errorf("%q: %+v, want exit %d, %q", c.args, o, c.exit, c.want)
		}
	}
}

func TestQuarantineAndRelease(t *testing.T) {
	w := world(t)
	w.Answer(func(e events.Event) {
		refuse := func(n ident.NodeID, text string) {
			w.Publish(events.Event{Entity: string(n), Cause: e.ID, Body: events.NodeRejected{
				Node: n, Command: e.ID, Code: errcode.NotFound, Errors: []spec.FieldError{{Message: text}},
			}})
		}
		switch b := e.Body.(type) {
		case events.NodeQuarantine:
			if b.Slot != nil && *b.Slot > 3 {
				refuse(b.Node, "there is no slot 9 on node node-a: it has 0 to 3")
				return
			}
			w.Publish(events.Event{Entity: string(b.Node), Cause: "another", Body: events.NodeQuarantined{}})
			w.Publish(events.Event{Entity: string(b.Node), Cause: e.ID, Body: events.NodeQuarantined{Slot: b.Slot, NodeFact: events.NodeFact{
				Node: b.Node, Reason: b.For.D().String() + " " + b.Reason,
			}}})
		case events.NodeRelease:
			n := shown(string(b.Node), events.NodeStateReady)
			w.Put(events.BucketNodes, string(b.Node), n)
		}
	})
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"quarantine", "node-a"}, 0, "node-a is in quarantine for 10m0s; end it with: regroup node release node-a\n"},
		{[]string{"quarantine", "node-a/2", "--for", "1h", "--reason", "bad GPU"}, 0, "node-a/2 is in quarantine for 1h0m0s; end it with: regroup node release node-a/2\n"},
		{[]string{"quarantine", "node-a/9"}, 3, "there is no slot 9 on node node-a: it has 0 to 3\n"},
		{[]string{"quarantine", "node-a/x"}, 2, "\"x\" is not a slot: write node-a/0\n"},
		{[]string{"quarantine", "node-a", "--for", "0s"}, 2, "--for is 0s: a quarantine lasts for some time\n"},
		{[]string{"quarantine", "nod-a/1"}, 3, "there is no node \"nod-a\": did you mean \"node-a\"?\n"},
		{[]string{"release", "node-a"}, 0, "node-a is not in quarantine: nothing to do\n"},
		{[]string{"release", "node-d/0"}, 0, "node-d/0 is not in quarantine: nothing to do\n"},
		{[]string{"release", "node-d/1"}, 0, "node-d/1 is released\n"},
		{[]string{"release", "node-d"}, 0, "node-d is not in quarantine: nothing to do\n"},
	} {
		if o := run(t, w, c.args...); o.Exit != c.exit || o.Err != c.want || o.Out != "" {
			t.Errorf("%q: %+v, want exit %d, %q", c.args, o, c.exit, c.want)
		}
	}
}

// TestNobodyAnswers is in virtual time: on a busy machine the node would not be found within 20 ms.
func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if o := run(t, world(t), "drain", "node-a", "--timeout", "20ms"); o.Exit != 5 || !strings.Contains(o.Err, "no answer from discovery") {
			t.Errorf("%+v", o)
		}
	})
}
