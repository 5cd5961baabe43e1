package worker

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// TestOnlyWhatTheAgentSetsIsRefused: a job may not set the variables that its workers are given,
// and may set all others.
func TestOnlyWhatTheAgentSetsIsRefused(t *testing.T) {
	set := map[string]bool{wire.EnvToken: true} // the shell adds it
	for _, g := range []events.Generation{0, 1} {
		w := &incarnation{ref: events.WorkerRef{Generation: g, Incarnation: "01W"}}
		env, _ := Config{ErrorDir: "/tmp"}.environment(events.Launch{Job: "j", World: 1, Generation: g, Spec: spec.Job{}.WithDefaults()}, events.LaunchMember{}, w)
		for name := range env {
			set[name] = true
			if !spec.AgentSets(name) {
				t.Errorf("a job may set %s, and the agent takes it away", name)
			}
		}
	}
	for name := range set {
		s := spec.Job{Name: "x", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}, Env: map[string]string{name: "1"}}
		if bad := s.WithDefaults().Check(); len(bad) != 1 || !strings.Contains(bad[0].Message, "set by the agent") {
			t.Errorf("%s: %v", name, bad)
		}
	}
	for _, name := range []string{wire.EnvCheckpointDir, "REGROUP_GPU", "REGROUP_BUCKET_BYTES", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_LOCAL_SOMETHING", "TORCHELASTIC_OTHER", "REGROUP_MINE"} {
		s := spec.Job{Name: "x", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}, Env: map[string]string{name: "1"}}
		if bad := s.WithDefaults().Check(); len(bad) != 0 {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

// TestEverySettingOfWorkersReachesThem: what the Python package and the SDK read from the
// environment is set by the agent or inherited.
func TestEverySettingOfWorkersReachesThem(t *testing.T) {
	found := map[string]string{}
	name := regexp.MustCompile(`["'](REGROUP_[A-Z_]+)["']`)
	for _, root := range []string{"../../python/regroup", "../../elastic", "../../collective", "../workerapi/wire"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if ext := filepath.Ext(path); d.IsDir() || ext != ".py" && ext != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "nccltest") {
				return nil
			}
			b, err := os.ReadFile(path)
			for _, m := range name.FindAllStringSubmatch(string(b), -1) {
				found[m[1]] = path
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 15 {
		t.Fatalf("only %d variables were found: is this the right place?", len(found))
	}
	for _, n := range slices.Sorted(maps.Keys(found)) {
		if !spec.AgentSets(n) && !spec.WorkerSetting(n) {
			t.Errorf("%s, which %s reads, does not reach a worker from the shell: it belongs into events/spec/environment.go", n, found[n])
		}
	}
}
