package view

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
)

// SparesText says how many spares of a job are ready, and why some cannot be; empty = none is kept.
func SparesText(id ident.JobID, nodes []events.NodeView) string {
	wanted, ready, on, problems := 0, 0, 0, ""
	for _, n := range nodes {
		for _, k := range n.Spares {
			if k.Job != id || n.State != events.NodeStateReady && n.State != events.NodeStateSuspected {
				continue
			}
			wanted, ready, on = wanted+k.Wanted, ready+k.Ready, on+1
			if k.Problem != "" && k.Ready < k.Wanted && problems == "" {
				problems = fmt.Sprintf("; on %s: %s", n.Node, strings.TrimSpace(k.Problem))
			}
		}
	}
	if on == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d ready on %s%s", ready, wanted, english.Plural(on, "node"), problems)
}
