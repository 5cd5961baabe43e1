package controller_test

import (
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/controller"
)

// TestEveryReadBodyHasAnEntity: services route by it.
func TestEveryReadBodyHasAnEntity(t *testing.T) {
	for _, row := range events.Catalog() {
		_, job := events.JobOf(row.New())
		_, node := events.NodeOf(row.New())
		if !job && !node && row.Type != (events.JobSubmit{}).Type() {
			t.Errorf("%s is about no job and no node", row.Type)
		}
		for _, s := range row.Readers {
			if !controller.Reads(s, row.New()) {
				t.Errorf("%s does not read %s", s, row.Type)
			}
		}
		if controller.Reads("nobody", row.New()) {
			t.Errorf("a service that is not in the catalogue reads %s", row.Type)
		}
	}
	if !controller.Reads(events.ServiceRendezvous, events.Heartbeat{}) {
		t.Error("a signal is not read")
	}
	if id, ok := events.JobOf(events.WorkerExited{WorkerRef: tables.WorkerRef{Job: "demo-1"}}); !ok || id != "demo-1" {
		t.Errorf("the job of an embedded struct is %q, %t", id, ok)
	}
	if _, ok := events.NodeOf(nil); ok {
		t.Error("no body is about a node")
	}
}
