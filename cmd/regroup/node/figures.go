package node

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events/figures"
)

// speeds says what was measured of the GPUs of a node, as 412 to 655 TFLOP/s, 1 fails; empty =
// nothing.
func speeds(p *figures.Preflight) string {
	if p == nil {
		return ""
	}
	low, high, fail := 0.0, 0.0, 0
	for _, g := range p.GPUs {
		if g.Failure != "" {
			fail++
		}
		if v := g.MatmulTFLOPS; v > 0 && g.Failure == "" {
			if high = max(high, v); low == 0 || v < low {
				low = v
			}
		}
	}
	var said []string
	switch {
	case high > low:
		said = append(said, fmt.Sprintf("%.4g to %.4g TFLOP/s", low, high))
	case high > 0:
		said = append(said, fmt.Sprintf("%.4g TFLOP/s", high))
	case fail == 0:
		said = append(said, "not measured")
	}
	if fail > 0 {
		said = append(said, fmt.Sprintf("%d failed", fail))
	}
	if r := p.AllReduce; r != nil && r.Failure != "" {
		said = append(said, "all-reduce failed")
	}
	return ", " + strings.Join(said, ", ")
}
