package serial

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFunctionsRunInTheirOrder(t *testing.T) {
	var q Queue
	var order []int
	errs := make(chan error, 100)
	failed := errors.New("failed")
	for i := range cap(errs) {
		q.Add(func() error {
			order = append(order, i)
			if i%2 == 0 {
				return failed
			}
			return nil
		}, func(err error) { errs <- err })
	}
	for i := range cap(errs) {
		if err := <-errs; errors.Is(err, failed) != (i%2 == 0) {
			t.Fatal(i, err)
		}
	}
	if !slices.IsSorted(order) || len(order) != cap(errs) || q.Pending() != 0 {
		t.Fatal(order, q.Pending())
	}
}

func TestWhoLearnsOfTheEndFindsAnEmptyQueue(t *testing.T) {
	var q Queue
	for range 100 {
		pending := make(chan int)
		q.Add(func() error { return nil }, func(error) { pending <- q.Pending() })
		if n := <-pending; n != 0 {
			t.Fatal(n, "are pending")
		}
	}
}

func TestAClosedQueueRunsWhatItHasAndTakesNoMore(t *testing.T) {
	var q Queue
	start, ended := make(chan struct{}), 0
	for range 3 {
		q.Add(func() error { <-start; return nil }, func(error) { ended++ })
	}
	if n := q.Pending(); n != 3 {
		t.Fatal(n, "are pending")
	}
	q.Close()
	if q.Add(func() error { panic("it runs") }, nil) {
		t.Fatal("a closed queue takes functions")
	}
	close(start)
	q.Wait()
	if ended != 3 {
		t.Fatal(ended, "have ended")
	}
}
