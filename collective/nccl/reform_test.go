package nccl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// The versions at which Reform changes, and its calls on one rank.
var reforms = map[int]struct {
	by    Way
	calls string
}{
	21403: {ByNewID, ""},
	22703: {ByShrinking, "CommShrinkAbort CommUserRank CommCount CommAbort"},
	22809: {ByRevoking, "CommRevoke CommShrink CommUserRank CommCount CommDestroy"},
	23007: {ByRevoking, "CommRevoke CommShrink CommUserRank CommCount CommDestroy"},
}

// hung returns a world of 4 in which rank 2 never joins a collective that the others wait for.
func hung(t *testing.T, l *Library) (comms []*Comm, survivors []int, waits []<-chan error) {
	t.Helper()
	comms = world(t, l, 4, nil)
	for _, r := range []int{0, 1, 3} {
		b := upload(t, comms[r].dev, floats(8, 1, 0))
		w, err := comms[r].Do(soon(t), nil, AllReduce(b, b, Float32, Sum))
		ok(t, err)
		wait := make(chan error, 1)
		go func() { wait <- w.Wait(soon(t)) }()
		waits = append(waits, wait)
	}
	return comms, []int{0, 1, 3}, waits
}

// survivorsOf makes the communicator of the survivors: with an ID a new one, else from the old.
func survivorsOf(ctx context.Context, c *Comm, survivors []int, id *UniqueID) (*Comm, error) {
	if id == nil {
		return c.Reform(ctx, survivors)
	}
	if err := c.Abort(ctx, errCaller); err != nil {
		return nil, err
	}
	return c.dev.Init(ctx, CommOptions{Rank: slices.Index(survivors, c.Rank()), World: len(survivors), ID: *id})
}

func reform(t *testing.T, comms []*Comm, survivors []int, id *UniqueID) ([]*Comm, []error) {
	t.Helper()
	next := make([]*Comm, len(survivors))
	errs := each(len(survivors), func(i int) (err error) {
		next[i], err = survivorsOf(soon(t), comms[survivors[i]], survivors, id)
		return err
	})
	ending(t, next)
	return next, errs
}

func TestSurvivorsReformInTheWayOfTheirVersion(t *testing.T) {
	for version, want := range reforms {
		t.Run(Version(version).String(), func(t *testing.T) {
			l := library(t, version)
			if l.ReformsBy() != want.by {
				t.Fatalf("by %q, not %q", l.ReformsBy(), want.by)
			}
			fake.Turn(t, "in_progress", 3)
			comms, survivors, waits := hung(t, l)
			var id *UniqueID
			if want.by == ByNewID {
				if _, errs := reform(t, comms, survivors, nil); !errors.Is(errs[0], ErrNeedsID) || !errors.Is(errs[0], ErrUnsupported) {
					t.Fatal(errs)
				}
				fresh, err := l.UniqueID()
				ok(t, err)
				id = &fresh
			} else {
				ok(t, comms[0].CanShrink())
			}
			fake.Calls()
			next, errs := reform(t, comms, survivors, id)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			calls := fake.Calls()
			for _, call := range strings.Fields(want.calls) {
				n := len(slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c != call }))
				if n != len(survivors) {
					t.Errorf("%s was called %d times: %v", call, n, calls)
				}
			}
			for i, c := range next {
				if c.Rank() != i || c.World() != 3 {
					t.Errorf("rank %d became %d of %d", survivors[i], c.Rank(), c.World())
				}
				if err := <-waits[i]; !errors.Is(err, ErrAborted) {
					t.Errorf("who waited got %v", err)
				}
			}
			sumsTo(t, next)
			ok(t, comms[2].Abort(soon(t), errCaller))
		})
	}
}

func TestAReportedNetworkErrorNeedsAFreshID(t *testing.T) {
	for _, version := range []int{22703, 23007} {
		t.Run(Version(version).String(), func(t *testing.T) {
			l := library(t, version)
			comms := world(t, l, 2, nil)
			// As if a connection of rank 0 were broken. The fake keeps the error, as NCCL's network
			// thread does.
			b := upload(t, comms[0].dev, floats(8, 1, 0))
			release := fake.Turn(t, "notice_death", 2)
			w, err := comms[0].Do(soon(t), nil, AllReduce(b, b, Float32, Sum))
			ok(t, err)
			if err := w.Wait(soon(t)); !errors.Is(err, ErrRemote) {
				t.Fatal(err)
			}
			if err := comms[0].CanShrink(); !errors.Is(err, ErrNeedsID) || !errors.Is(err, ErrRemote) {
				t.Fatalf("CanShrink: %v", err)
			}
			ok(t, comms[1].CanShrink())
			release()
			_, err = comms[0].Reform(soon(t), []int{0})
			if !errors.Is(err, ErrNeedsID) || !errors.Is(err, ErrRemote) {
				t.Fatalf("Reform: %v", err)
			}
			id, err := l.UniqueID()
			ok(t, err)
			next, errs := reform(t, comms, []int{0, 1}, &id)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			sumsTo(t, next)
		})
	}
}

func TestAllMayReformAfterAFalseAlarm(t *testing.T) {
	t.Run("by revoking", func(t *testing.T) {
		l := library(t, 22809)
		comms := world(t, l, 3, nil)
		next, errs := reform(t, comms, []int{0, 1, 2}, nil)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(fake.Calls(), "CommSplit") {
			t.Error("not by a split: NCCL does not shrink by nobody")
		}
		sumsTo(t, next)
	})
	t.Run("by shrinking", func(t *testing.T) {
		comms := world(t, library(t, 22703), 2, nil)
		if _, errs := reform(t, comms, []int{0, 1}, nil); !errors.Is(errs[0], ErrNeedsID) {
			t.Error(errs)
		}
	})
}

func TestAReformThatASurvivorDoesNotJoinEndsWithItsContextAndCanBeRepeated(t *testing.T) {
	l := library(t, 22809)
	comms, _, _ := hung(t, l)
	ctx, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
	defer cancel()
	_, err := comms[0].Reform(ctx, []int{0, 1, 3}) // alone
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNeedsID) {
		t.Fatal(err)
	}
	id, err := l.UniqueID()
	ok(t, err)
	next, errs := reform(t, comms, []int{0, 3}, &id)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	ok(t, comms[1].Abort(soon(t), errCaller))
	ok(t, comms[2].Abort(soon(t), errCaller))
	sumsTo(t, next)
}

func TestSurvivorsMustBeARankedListWithOneself(t *testing.T) {
	l := library(t, 22809)
	c := world(t, l, 2, nil)[0]
	for _, ranks := range [][]int{nil, {1}, {1, 0}, {0, 0}, {0, 2}, {-1, 0}} {
		if _, err := c.Reform(soon(t), ranks); !errors.Is(err, ErrInvalid) || c.Err() != nil {
			t.Errorf("%v: %v, %v", ranks, err, c.Err())
		}
	}
}
