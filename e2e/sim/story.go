package sim

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// brief describes a command by its fields, and a fact as users see it; with the attempts and
// commits of members, which tell who holds the state.
func brief(b events.Body) string {
	switch b := b.(type) {
	case events.RoundSealed:
		var m []string
		for _, x := range b.Members {
			m = append(m, fmt.Sprintf("%s#%d@%d.%d", x.Place, x.Attempt, uint64(x.Commit.Generation), x.Commit.Step))
		}
		return b.Generation.String() + " " + strings.Join(m, " ")
	case events.WorkerExited:
		return fmt.Sprintf("%s#%d %s done %t: %s", b.Place, b.Attempt, b.Generation, b.Done, view.ExitText(b))
	case events.JobScale:
		return fmt.Sprint(b.Job, " ", b.Workers)
	case events.JobStop:
		return fmt.Sprint(b.Job, " now ", b.Now)
	case events.JobSubmit:
		return fmt.Sprint(b.Spec.Name, " ", b.Spec.Workers, " ", b.Spec.Recovery)
	case events.NodeDrain:
		return fmt.Sprint(b.Node, " undo ", b.Undo)
	}
	return view.Describe(b)
}
