package network

import (
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
)

// TestFaults injects one fault at a time into a data centre that all cases share. A case ends when
// its job has succeeded with every sample once; the next one starts when all nodes are ready again.
func TestFaults(t *testing.T) {
	c := datacenter(t)
	for _, f := range []struct {
		name string
		do   func(*trial)
	}{
		{"worker killed", workerKilled},
		{"node cut off", func(tr *trial) { nodeLost(tr, "node cut off, both ways", Isolate("node-4")) }},
		{"node mute", func(tr *trial) { nodeLost(tr, "node cut off, nothing gets out", []Rule{Cut("node-4", "")}) }},
		{"node deaf", func(tr *trial) { nodeLost(tr, "node cut off, nothing gets in", []Rule{Cut("", "node-4")}) }},
		{"lossy node", lossyNode},
		{"agent frozen", agentFrozen},
		{"replicas frozen", replicasFrozen},
		{"node without brokers", nodeWithoutBrokers},
		{"two nodes cut from each other", pairCut},
		{"broker cut off", brokerCutOff},
		{"stream leader killed", leaderKilled},
		{"all brokers down", allBrokersDown},
		{"everything in turn", everythingInTurn},
	} {
		ok := t.Run(f.name, func(t *testing.T) {
			tr := begin(t, c)
			f.do(tr)
			tr.ends()
		})
		if !ok {
			t.Fatal("what follows would meet a broken data centre")
		}
	}
}

// TestNodesWithIPv6Alone: the eight workers of four nodes train together, and go on without one of
// them.
func TestNodesWithIPv6Alone(t *testing.T) {
	c := build(t, Options{IPv6: true})
	for _, n := range c.Nodes {
		v, err := cluster.View[events.NodeView](t.Context(), c.Client, events.BucketNodes, n)
		if err != nil || v.Address != c.Address(n) {
			t.Errorf("%s is reached at %q, want %q: %v", n, v.Address, c.Address(n), err)
		}
	}
	tr := begin(t, c)
	workerKilled(tr)
	tr.ends()
}

func workerKilled(tr *trial) {
	over := tr.fault("worker killed")
	tr.killWorker("node-2")
	tr.trains(8)
	over()
}

// The survivors train on, and the node returns as a newcomer.
func nodeLost(tr *trial, what string, cut []Rule) {
	over := tr.fault(what)
	must(tr.t, tr.Break(cut...))
	tr.trains(6)
	over()
	must(tr.t, tr.NodeIs(tr.ctx, "node-4", events.NodeStateLost))
	over = tr.fault("node comes back")
	must(tr.t, tr.Heal(cut...))
	tr.trains(8)
	over()
}

// A lossy link may remove the node from the job; it must do no more.
func lossyNode(tr *trial) {
	over := tr.fault("30 % of a node's packets lost for 4 s")
	must(tr.t, tr.Break(Lossy("node-3", 0.3)...))
	tr.passes(4 * time.Second)
	must(tr.t, tr.HealAll())
	tr.makes(50)
	over()
}

// The workers of a frozen agent train on until discovery declares the node lost.
func agentFrozen(tr *trial) {
	over := tr.fault("agent frozen")
	tr.signal(syscall.SIGSTOP, "node-4")
	tr.trains(6)
	over()
	over = tr.fault("frozen agent goes on")
	tr.signal(syscall.SIGCONT, "node-4")
	tr.trains(8)
	over()
}

// One replica of each service freezes in the middle of a decision, and resumes after the documents
// have changed.
func replicasFrozen(tr *trial) {
	over := tr.fault("worker killed, one replica of every service frozen")
	var frozen []string
	for _, s := range events.ServiceNames() {
		frozen = append(frozen, s+"-1")
	}
	tr.signal(syscall.SIGSTOP, frozen...)
	tr.killWorker("node-1")
	tr.trains(8)
	over()
	tr.killWorker("node-2")
	tr.signal(syscall.SIGCONT, frozen...) // their old decisions meet changed documents
	tr.trains(8)
	tr.makes(20)
}

// Training does not notice a short partition. A worker that dies during one is detected by its
// peers; its agent cannot report it, so the node is lost too.
func nodeWithoutBrokers(tr *trial) {
	var cut []Rule
	for _, b := range tr.Brokers {
		cut = append(cut, CutBoth("node-4", b)...)
	}
	const short = 600 * time.Millisecond // lost packets are retransmitted by then; the next retransmission is much later
	for try := 1; ; try++ {
		began := time.Now()
		over := tr.fault("node without brokers for 0.5 s")
		must(tr.t, tr.Break(cut...))
		tr.passes(500 * time.Millisecond)
		must(tr.t, tr.Heal(cut...))
		took := time.Since(began)
		tr.makes(20)
		over()
		v, err := tr.Client.Job(tr.ctx, tr.run.Job)
		must(tr.t, err)
		if v.Generation == tr.at {
			break
		}
		if took <= short || try == 5 { // otherwise a loaded machine has made it longer
			tr.t.Fatalf("%s without brokers made generation %s of %s", took, v.Generation, tr.at)
		}
		tr.trains(8)
	}
	over := tr.fault("node without brokers, a worker dies there")
	must(tr.t, tr.Break(cut...))
	tr.killWorker("node-4")
	tr.trains(6)
	over()
	must(tr.t, tr.HealAll())
	tr.trains(8)
}

// Two nodes that cannot reach each other accuse each other; all others are healthy. One of them is
// excluded, and the job trains on while the link is cut; no failure is counted. Once the link has
// healed it is admitted again.
func pairCut(tr *trial) {
	over := tr.fault("two nodes cut from each other")
	cut := CutBoth("node-2", "node-3")
	must(tr.t, tr.Break(cut...))
	g := tr.trains(6)
	tr.makes(20)
	over()
	if g.Cause.Kind != events.CauseLink {
		tr.t.Errorf("%s is sealed because of %+v", g.Generation, g.Cause)
	}
	v, err := tr.Client.Job(tr.ctx, tr.run.Job)
	must(tr.t, err)
	if len(v.Failures) > 0 {
		tr.t.Errorf("a cut link was counted: %v", v.Failures)
	}
	over = tr.fault("two nodes reach each other again")
	must(tr.t, tr.Heal(cut...))
	tr.trains(8)
	over()
}

func brokerCutOff(tr *trial) {
	over := tr.fault("one broker of three cut off, a worker killed")
	cut := Isolate("broker-3")
	must(tr.t, tr.Break(cut...))
	tr.killWorker("node-1")
	tr.passes(6 * time.Second)
	tr.makes(20)
	over()
	must(tr.t, tr.Heal(cut...))
	tr.makes(20)
}

func leaderKilled(tr *trial) {
	leader, err := tr.Leader(tr.ctx, events.StreamFacts)
	must(tr.t, err)
	over := tr.fault("leader of the facts killed, and a worker")
	tr.kill(leader)
	tr.killWorker("node-1")
	tr.trains(8)
	over()
	tr.restart(leader)
	tr.makes(20)
}

// Training needs no broker. A worker that dies meanwhile is replaced once they are back.
func allBrokersDown(tr *trial) {
	over := tr.fault("all brokers down for 4 s")
	tr.kill(tr.Brokers...)
	tr.passes(4 * time.Second)
	over()
	tr.killWorker("node-1")
	tr.restart(tr.Brokers...)
	tr.trains(8)
}

func everythingInTurn(tr *trial) {
	for _, name := range append(tr.Services(), tr.Brokers...) {
		over := tr.fault("service or broker killed")
		tr.kill(name)
		tr.makes(20)
		over()
		tr.restart(name)
		tr.makes(5)
	}
	for _, n := range tr.Nodes {
		over := tr.fault("agent killed with its workers")
		tr.kill(n)
		tr.trains(6)
		over()
		tr.restart(n)
		tr.trains(8)
	}
}
