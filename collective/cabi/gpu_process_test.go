//go:build cgo

package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestGPUsOfTheCLibrary(t *testing.T) {
	for _, nodes := range [][][]int{{{0, 1}}, {{0, 1}, {2}}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			j := newGPUJob(t, 23007)
			t.Log(j.form(t, "formed", nodes...)[0])
			j.do(t, "check", "right")
			if said := j.form(t, "formed", nodes...)[0]; !strings.Contains(said, "(kept)") {
				t.Errorf("after a change that nobody was lost in: %s", said)
			}
			j.do(t, "check", "right")
			j.end(t)
		})
	}
}

func TestAKilledRankWithAGPU(t *testing.T) {
	for version, how := range map[int]string{23007: "(shrunk)", 21403: "(new)"} {
		t.Run(how, func(t *testing.T) {
			j := newGPUJob(t, version)
			j.form(t, "formed", []int{0, 1, 2})
			j.do(t, "check", "right")
			j.kill(t, 1, 1)
			if said := j.form(t, "formed", []int{0, 2})[0]; !strings.Contains(said, how) {
				t.Errorf("%q, not %q", said, how)
			}
			j.do(t, "check", "right")
			j.form(t, "formed", []int{0, 1, 2}) // with a newcomer
			j.do(t, "check", "right")
			j.end(t)
		})
	}
}

func TestARankWithoutAGPU(t *testing.T) {
	for name, env := range map[string]string{
		"no GPU":  "REGROUP_FAKE_DEVICES=-1",
		"no NCCL": "REGROUP_NCCL_LIBRARY=/nowhere/libnccl.so.2",
	} {
		t.Run(name, func(t *testing.T) {
			j := newGPUJob(t, 23007)
			j.start(t, 1, env)
			for device, said := range j.form(t, "absent", []int{0, 1}) {
				if !strings.Contains(said, "rank 1 has no GPU") || !strings.Contains(said, "is not available") {
					t.Errorf("member %d: %q", device, said)
				}
			}
			j.do(t, "host", "host 2")
			j.end(t)
		})
	}
}

// TestAnEngineOutlivesAGenerationWithoutGPUs: it is there for the next one.
func TestAnEngineOutlivesAGenerationWithoutGPUs(t *testing.T) {
	j := newGPUJob(t, 23007)
	j.form(t, "formed", []int{0, 2})
	j.start(t, 1, "REGROUP_FAKE_DEVICES=-1")
	j.form(t, "absent", []int{0, 1, 2})
	j.do(t, "host", "host 3")
	j.leave(t, 1)
	if said := j.form(t, "formed", []int{0, 2})[0]; !strings.Contains(said, "(kept)") {
		t.Errorf("after a generation without it: %s", said)
	}
	j.do(t, "check", "right")
	j.end(t)
}
