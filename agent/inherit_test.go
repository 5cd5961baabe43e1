package agent

import (
	"testing"

	"github.com/regroup-io/regroup/agent/submitenv"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
)

// TestWorkersOfAnotherUserInheritNothing, whatever was kept for their job.
func TestWorkersOfAnotherUserInheritNothing(t *testing.T) {
	const origin = "7f3a456789abcdef0123456789abcdef"
	a := &Agent{submits: submitenv.Store{Dir: t.TempDir()}}
	if err := a.submits.Keep(origin, submitenv.Environment{Jobs: ident.JobIDsOf("mnist", origin), Dir: "/root", Variables: [][]byte{[]byte("A=b")}}); err != nil {
		t.Fatal(err)
	}
	for who, want := range map[*worker.Account]bool{nil: true, {UID: 4294967294, Name: "eve"}: false} {
		from, dir := worker.Inherited{SubmitEnvironment: origin}, ""
		if err := a.inherit("mnist-7f3a", who, &from, &dir); (err == nil) != want || (from.Variables != nil) != want || (dir != "") != want {
			t.Errorf("%+v gets %q in %q, %v", who, from.Variables, dir, err)
		}
	}
}
