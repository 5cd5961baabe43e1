//go:build cgo

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
)

// both has both ranks do something at once.
func both(made [2]*communicator, do func(rank int, c *communicator) error) [2]error {
	var errs [2]error
	other := make(chan error)
	go func() { other <- do(1, made[1]) }()
	errs[0] = do(0, made[0])
	errs[1] = <-other
	return errs
}

// TestWithoutAGPUTheHostWorksOn: also when the GPU is requested again.
func TestWithoutAGPUTheHostWorksOn(t *testing.T) {
	made := pair(t)
	for range 2 {
		for rank, err := range both(made, func(rank int, c *communicator) error {
			_, err := c.openGPU(fmt.Sprintf(`{"absent": "slot %d is for the processor"}`, rank), nil)
			return err
		}) {
			if s, _ := statusOf(err); s != statusUnsupported || !strings.Contains(err.Error(), "rank 0 has no GPU") ||
				!strings.Contains(err.Error(), "slot 0 is for the processor") {
				t.Errorf("rank %d: status %d: %v", rank, s, err)
			}
		}
		for rank, err := range both(made, func(_ int, c *communicator) error {
			v := []int32{1}
			if err := collective.Allreduce(t.Context(), c.Communicator, v, collective.Sum); err != nil || v[0] != 2 {
				return fmt.Errorf("the sum is %d: %w", v[0], err)
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
}

func TestOptionsOfAGPU(t *testing.T) {
	made := pair(t)
	for _, options := range []string{
		`{"device": -1}`, `{"local_rank": 1}`, `{"local_size": -1}`, `{"chunk_bytes": 100}`, `{"devices": 1}`, ``,
	} {
		if _, err := made[0].openGPU(options, nil); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", options, err)
		}
	}
}

func TestStatusOfWhatGPUsSay(t *testing.T) {
	lost := &collective.PeerLostError{Rank: 3}
	for _, test := range []struct {
		err  error
		want status
		lost int
	}{
		{&nccl.UnavailableError{Library: "libcuda.so.1"}, statusUnsupported, -1},
		{fmt.Errorf("open: %w", nccl.ErrInvalid), statusInvalid, -1},
		{nccl.ErrClosed, statusClosed, -1},
		{errors.Join(lost, &nccl.StuckError{Op: "ncclCommAbort"}), statusStuck, 3},
		{fmt.Errorf("Allreduce: %w", lost), statusPeerLost, 3},
	} {
		if s, lost := statusOf(test.err); s != test.want || lost != test.lost {
			t.Errorf("%v: status %d and lost rank %d, want %d and %d", test.err, s, lost, test.want, test.lost)
		}
	}
}
