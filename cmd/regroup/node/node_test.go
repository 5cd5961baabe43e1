package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/cmd/regroup/internal/clienttest"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func view(name string, state events.NodeState) events.NodeView {
	return events.NodeView{
		Node: events.NodeID(name), Incarnation: "01J", State: state, Slots: 4, Address: "10.0.0.1",
		Since: clienttest.Now.Add(-90 * time.Second),
	}
}

func world(t *testing.T) *clienttest.World {
	w := clienttest.New(t)
	lost, drained := view("node-c", events.NodeGone), view("node-b", events.NodeReady)
	lost.Reason, drained.Draining, drained.Reason = "silent for 2.1s", true, "new disk"
	for _, n := range []events.NodeView{view("node-a", events.NodeReady), drained, lost} {
		w.Put(events.BucketNodes, string(n.Node), n)
	}
	w.Put(events.BucketPlacements, events.PoolKey, events.PoolView{Jobs: map[events.JobID]events.PlacementView{
		"a-0001": {Places: []events.Place{{Node: "node-a"}, {Node: "node-a", Slot: 1}, {Node: "node-b"}}},
		"b-0002": {Places: []events.Place{{Node: "node-a", Slot: 2}}},
	}})
	return w
}

func run(t *testing.T, w *clienttest.World, args ...string) clienttest.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return w.Run(ctx, "", func(e command.Env) []*cobra.Command { return []*cobra.Command{Command(e)} }, append([]string{"node"}, args...)...)
}

func TestList(t *testing.T) {
	w := world(t)
	for file, args := range map[string][]string{
		"ls.txt": {"ls"}, "ls_wide.txt": {"ls", "-o", "wide"}, "ls_name.txt": {"ls", "-o", "name"}, "ls.json": {"ls", "-o", "json"},
	} {
		o := run(t, w, args...)
		if o.Exit != 0 || o.Err != "" {
			t.Errorf("%s: %+v", file, o)
		}
		golden.Compare(t, "testdata/"+file, o.Out)
	}
	if o := run(t, clienttest.New(t), "ls"); o.Exit != 0 || o.Out != "" || !strings.Contains(o.Err, "no nodes") {
		t.Errorf("no nodes: %+v", o)
	}
}

func TestDrain(t *testing.T) {
	w := world(t)
	w.Answer(func(e events.Event) {
		d := e.Body.(events.NodeDrain)
		if d.Node == "node-c" {
			w.Tell(events.Event{Entity: "node-c", Body: events.NodeRejected{Command: "another", Findings: []events.Finding{{Message: "not this"}}}})
			w.Tell(events.Event{Entity: "node-c", Cause: e.ID, Body: events.NodeRejected{
				Node: "node-c", Command: e.ID, Code: events.NotFound, Findings: []events.Finding{{Message: "there is no node node-c"}},
			}})
			return
		}
		n := view(string(d.Node), events.NodeReady)
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
		{[]string{"drain", "node"}, 2, "\"node\" is the beginning of 3 nodes: node-a, node-b, node-c\n"},
		{[]string{"drian", "node-a"}, 2, "there is no regroup node drian: did you mean \"drain\"?\n"},
	} {
		if o := run(t, w, c.args...); o.Exit != c.exit || o.Err != c.want || o.Out != "" {
			t.Errorf("%q: %+v, want exit %d, %q", c.args, o, c.exit, c.want)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	if o := run(t, world(t), "drain", "node-a", "--timeout", "20ms"); o.Exit != 5 || !strings.Contains(o.Err, "no answer from discovery") {
		t.Errorf("%+v", o)
	}
}
