package job_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// permutations calls f with each order of the elements.
func permutations(all []string, f func([]string)) {
	var rec func(done, left []string)
	rec = func(done, left []string) {
		if len(left) == 0 {
			f(done)
			return
		}
		for i := range left {
			rest := append(append([]string{}, left[:i]...), left[i+1:]...)
			rec(append(done[:len(done):len(done)], left[i]), rest)
		}
	}
	rec(nil, all)
}

// TestTheEndOfAnAgentIsOneFailureInAnyOrder kills an agent with two workers; it is started again.
// Its successor tells the exits, discovery the loss and the return, the survivor regroups without
// them or fails because of them. Each order, with the rest half a minute later, is one failure.
func TestTheEndOfAnAgentIsOneFailureInAnyOrder(t *testing.T) {
	const orphan = " code=-1 signal=SIGKILL agent=A2 orphaned how=ended_with_its_agent"
	exits := []string{"exit a/0=w1" + orphan, "exit a/1=w2" + orphan, "lost a agent=A1 n=2", "joined a agent=A2 n=3"}
	for name, others := range map[string][]string{
		"the survivors go on":      {"seal 2 b/0=w3 agent=B1", "ready b/0=w3 g=2 rank=0 step=5"},
		"the survivors wait":       {"open 2 cause=worker-lost"},
		"a survivor ends of it":    {"exit b/0=w3 g=1 code=1 agent=B1 exception=ErrPeerLost:_rank_0 peer"},
		"a survivor does not wait": {"missed 2 a/0=w1 a/1=w2 agent=A1", "seal 2 b/0=w3 agent=B1"},
	} {
		t.Run(name, func(t *testing.T) {
			orders := 0
			permutations(append(append([]string{}, exits...), others...), func(order []string) {
				for _, pause := range []int{len(order), 2} { // the rest comes late, or not
					orders++
					w := newWorld()
					var log []string
					counted := 0
					count := func(d events.Decision) {
						for _, f := range d.Facts {
							if b, ok := f.Body.(events.JobFailureCounted); ok {
								counted++
								log = append(log, fmt.Sprintf("  counted: %s %s of %s", b.Kind, b.Worker, b.Generation))
							}
						}
					}
					script := append([]string{
						"submit workers=1:3 failures=5", "place n=1 a/0 a/1 b/0", "start a/0=w1 agent=A1", "start a/1=w2 agent=A1", "start b/0=w3 agent=B1",
						"seal 1 a/0=w1 a/1=w2 b/0=w3", "ready b/0=w3 g=1 rank=2 step=3", "ready a/0=w1 g=1 rank=0 step=3",
					}, order...)
					for i, line := range script {
						if i == len(script)-len(order)+pause {
							w.wait(t, 30*time.Second, count)
						}
						log = append(log, line)
						body, number := parse(t, strings.Fields(line))
						count(w.step(t, body, number))
					}
					w.wait(t, 30*time.Second, count)
					if counted != 1 || len(w.s.View.Failures) != 1 {
						t.Fatalf("%d failures were counted, %d published:\n%s", len(w.s.View.Failures), counted, strings.Join(log, "\n"))
					}
				}
			})
			t.Logf("%d orders", orders)
		})
	}
}
