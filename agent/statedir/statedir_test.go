package statedir

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
)

// TestOneAgent: a second agent is told what it can do about the one that is there.
func TestOneAgent(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(dir)
	if events.CodeOf(err) != events.Conflict || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "REGROUP_AGENT_NODE") {
		t.Errorf("a second agent: %v", err)
	}
	unlock()
	again, err := Lock(dir)
	if err != nil {
		t.Fatalf("after it has ended: %v", err)
	}
	again()
}
