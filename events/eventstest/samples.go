package eventstest

import (
	"fmt"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// SampleMembers returns the members of a large generation as agents create them.
func SampleMembers(nodes, slots int) tables.MemberTable {
	var r tables.MemberTable
	for n := range nodes {
		agent := ident.Token("agent", fmt.Sprint(n))
		agent = "01KAZ2C4XK" + strings.ToUpper(agent[:16])
		for s := range slots {
			incarnation := fmt.Sprintf("01KAZ3%04X%05X%s", n%7, s+1, agent[15:])
			r = append(r, tables.Member{
				Place: ident.Place{Node: ident.NodeID(fmt.Sprintf("node-%04d", n)), Slot: ident.Slot(s)}, Incarnation: ident.Incarnation(incarnation), Agent: ident.Incarnation(agent), Attempt: 1,
				Address: fmt.Sprintf("10.%d.%d.%d:%d", n>>16, n>>8&255, n&255, 32768+(n*7919+s*104729)%28000), PID: 2000 + n%50 + s,
				Commit: tables.Commit{Generation: 3, Step: 1200, Hash: "9f86d081884c7d65"},
			})
		}
	}
	r.Number()
	return r
}

// SampleJob returns a valid specification in which every field but rendezvous is set.
func SampleJob() spec.Job {
	three := 3
	return spec.Job{
		Version: "v1", Name: "cifar", Command: []string{"python", "train.py", "--lr=1e-3"}, Workdir: "/srv/cifar",
		Env: map[string]string{"OMP_NUM_THREADS": "1", "NAME": "Zoë \"x\" 100%"}, Workers: spec.Workers{Min: 2, Max: 8}, Recovery: spec.RecoveryInProcess,
		Failures: spec.Failures{Max: &three, Per: spec.Duration(time.Hour), SameStep: 4},
		Elastic:  spec.Elastic{LastCall: spec.Duration(30 * time.Second), RejoinWithin: spec.Duration(500 * time.Millisecond), StartWithin: spec.Duration(10 * time.Minute), Settle: spec.Duration(200 * time.Millisecond), Timeout: spec.Duration(20 * time.Minute), ResetLimit: &three},
		Health:   spec.Health{Hang: spec.Duration(5 * time.Minute)}, GPU: &spec.GPU{Model: "H100", Memory: "80GB"},
		Stop: spec.Stop{Signal: "SIGINT", Grace: spec.Duration(5 * time.Second)}, Data: spec.Data{Samples: 60000}, Labels: map[string]string{"team": "vision"},
	}
}
