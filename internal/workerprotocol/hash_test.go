package workerprotocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/limits"
)

func TestHashReportsAreBounded(t *testing.T) {
	if err := (HashReport{Step: 3, Hash: "ab", Tensors: map[string]string{"w": "cd"}}).Check(); err != nil {
		t.Error(err)
	}
	many := map[string]string{}
	for i := range limits.Names.Max + 1 {
		many[fmt.Sprint(i)] = "ab"
	}
	long := strings.Repeat("x", limits.Word.Max+1)
	for want, r := range map[string]HashReport{
		"hash: must not be empty":  {Step: 3},
		"hash has":                 {Hash: long},
		"tensors has":              {Hash: "ab", Tensors: many},
		"the name of a tensor has": {Hash: "ab", Tensors: map[string]string{long: "cd"}},
		"the hash of a tensor has": {Hash: "ab", Tensors: map[string]string{"w": long}},
		"dealt has":                {Hash: "ab", Dealt: make([]DealtSteps, limits.Epochs.Max+1)},
		"dealt.ranks has":          {Hash: "ab", Dealt: []DealtSteps{{Ranks: make([]int, limits.Workers.Max+1)}}},
	} {
		if err := r.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
