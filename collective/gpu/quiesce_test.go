package gpu

import (
	"errors"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// TestQuietAfterAFailure checks that NCCL has been ended in the middle of a reduction that a rank
// never joins.
func TestQuietAfterAFailure(t *testing.T) {
	_, engines := made(t, 23007, [][]int{{0, 1}}, nil)
	e := engines[0]
	b := upload(t, e.Device(), floats(5000, 0, 1))
	task := e.Allreduce(soon(t), nil, b, kernel.Float32, collective.Sum)
	<-task.launched
	e.comm.Abort(errors.New("enough"))
	if err := task.Wait(soon(t)); !errors.Is(err, collective.ErrAborted) {
		t.Errorf("%v, want ErrAborted", err)
	}
	for rank, e := range engines {
		<-e.comm.Context().Done()
		e.Quiesce()
		select {
		case <-e.watched:
		default:
			t.Errorf("rank %d is not over", rank)
		}
		if !errors.Is(e.Err(), collective.ErrAborted) || stuck(e.Err()) {
			t.Errorf("rank %d: %v, want ErrAborted", rank, e.Err())
		}
		if err := e.Synchronize(soon(t)); !errors.Is(err, collective.ErrAborted) {
			t.Errorf("rank %d goes on: %v", rank, err)
		}
	}
}
