package statedir

import (
	"strings"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
)

// TestOneAgent: the refusal of a second agent says what to do about the first.
func TestOneAgent(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(dir)
	if errcode.Of(err) != errcode.Conflict || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "REGROUP_AGENT_NODE") {
		t.Errorf("a second agent: %v", err)
	}
	unlock()
	again, err := Lock(dir)
	if err != nil {
		t.Fatalf("after it has ended: %v", err)
	}
	again()
}

// TestALookKeepsNobodyOut: commands that look whether an agent runs take nothing from one that
// starts meanwhile.
func TestALookKeepsNobodyOut(t *testing.T) {
	dir := t.TempDir()
	over := make(chan struct{})
	var looks sync.WaitGroup
	for range 4 {
		looks.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					InUse(dir)
				}
			}
		})
	}
	for range 2000 {
		unlock, err := Lock(dir)
		if err != nil {
			t.Error(err)
			break
		}
		if !InUse(dir) {
			t.Error("a running agent is not seen")
		}
		unlock()
	}
	close(over)
	looks.Wait()
}
