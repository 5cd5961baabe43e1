package elastic

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic/elastictest"
)

func TestFromEnv(t *testing.T) {
	t.Setenv("REGROUP_SOCKET", "/run/a.sock")
	t.Setenv("REGROUP_JOB", "j")
	t.Setenv("REGROUP_TOKEN", "x")
	t.Setenv("REGROUP_ADVERTISE", "10.0.0.1")
	t.Setenv("TRACEPARENT", elastictest.Traceparent(1, 0))
	for ports, want := range map[string][2]int{"": {}, "7000-7100": {7000, 7100}, "7000": {7000, 7000}} {
		t.Setenv("REGROUP_DATA_PORTS", ports)
		o, err := FromEnv()
		if err != nil || o.Socket != "/run/a.sock" || o.Job != "j" || o.Token != "x" || o.Host != "10.0.0.1" || o.Traceparent != elastictest.Traceparent(1, 0) || [2]int{o.PortMin, o.PortMax} != want {
			t.Errorf("%q: %+v, %v", ports, o, err)
		}
	}
	t.Setenv("REGROUP_CHECKPOINT_DIR", "/checkpoints")
	t.Setenv("REGROUP_CHECKPOINT_EVERY", "90s")
	t.Setenv("REGROUP_CHECKPOINT_KEEP", "5")
	t.Setenv("REGROUP_CHECKPOINT_DEFAULT_DIR", "/of/the/agent")
	if o, err := FromEnv(); err != nil || o.Checkpoint != (Checkpoint{Dir: "/checkpoints", Every: 90 * time.Second, Keep: 5}) {
		t.Errorf("%+v, %v", o.Checkpoint, err)
	}
	t.Setenv("REGROUP_CHECKPOINT_DIR", "") // none is wanted
	if o, err := FromEnv(); err != nil || o.Checkpoint.Dir != "" || o.Checkpoint.OfJob {
		t.Errorf("%+v, %v", o.Checkpoint, err)
	}
	_ = os.Unsetenv("REGROUP_CHECKPOINT_DIR") // t.Setenv brings back what it was
	if o, err := FromEnv(); err != nil || o.Checkpoint.Dir != "/of/the/agent" || !o.Checkpoint.OfJob {
		t.Errorf("%+v, %v", o.Checkpoint, err)
	}
	for name, least := range map[string]slog.Level{"": slog.LevelWarn, "info": slog.LevelInfo, "error": slog.LevelError} {
		t.Setenv("REGROUP_LOG_LEVEL", name)
		if o, err := FromEnv(); err != nil || !o.Log.Enabled(t.Context(), least) || o.Log.Enabled(t.Context(), least-1) {
			t.Errorf("%q does not log from %s on: %v", name, least, err)
		}
	}
	t.Setenv("REGROUP_LOG_LEVEL", "loud")
	if _, err := FromEnv(); err == nil || !strings.Contains(err.Error(), "REGROUP_LOG_LEVEL") {
		t.Errorf("error %v", err)
	}
	t.Setenv("REGROUP_LOG_LEVEL", "")
	t.Setenv("REGROUP_DATA_PORTS", "many")
	if _, err := FromEnv(); err == nil || !strings.Contains(err.Error(), "REGROUP_DATA_PORTS") {
		t.Errorf("error %v", err)
	}
}

func TestRunGivesUpWithoutItsAgent(t *testing.T) {
	o := Options{Job: "j", Socket: filepath.Join(t.TempDir(), "nobody"), AgentTimeout: 100 * time.Millisecond}
	err := Run(t.Context(), o, NewState(nil), nil)
	if err == nil || !strings.Contains(err.Error(), "has not served") {
		t.Errorf("error %v", err)
	}
}
