package node

import (
	"testing"

	"github.com/regroup-io/regroup/events/figures"
)

func TestSpeeds(t *testing.T) {
	for want, p := range map[string]*figures.Preflight{
		"":                                  nil,
		", not measured":                    {Problem: "no torch"},
		", 655 TFLOP/s":                     {GPUs: []figures.GPU{{MatmulTFLOPS: 655}}},
		", 412 to 655 TFLOP/s":              {GPUs: []figures.GPU{{MatmulTFLOPS: 655}, {MatmulTFLOPS: 412}, {}}},
		", 1 failed":                        {GPUs: []figures.GPU{{MatmulTFLOPS: 655, Failure: "wrong memory"}}},
		", 655 TFLOP/s, 1 failed":           {GPUs: []figures.GPU{{MatmulTFLOPS: 655}, {Failure: "hangs"}}},
		", not measured, all-reduce failed": {AllReduce: &figures.AllReduce{Failure: "hangs"}},
	} {
		if got := speeds(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
