package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func TestEveryStepWaitsWhileNCCLIsInProgress(t *testing.T) {
	// The fake counts an earlier call as a violation, and queues the operation only after enough
	// polls: an event that is recorded early passes too soon.
	fake.Turn(t, "in_progress", 7)
	l := library(t, 23007)
	comms := world(t, l, 3, nil)
	sumsTo(t, comms)
	here := make([]Buffer, 3)
	for i, c := range comms {
		here[i] = upload(t, c.dev, floats(64, float64(i), 0))
	}
	all(t, 3, func(i int) error {
		w, err := comms[i].Do(soon(t), nil, Send(here[i].Slice(0, 128), Float32, (i+1)%3), Recv(here[i].Slice(128, 256), Float32, (i+2)%3))
		if err != nil {
			return err
		}
		return w.Wait(soon(t))
	})
	for i := range 3 {
		if got := float(download(t, here[i]), 32+5); got != float64(5*((i+2)%3)) {
			t.Errorf("rank %d got %v", i, got)
		}
	}
	next, errs := reform(t, comms, []int{0, 1, 2}, nil)
	ok(t, errors.Join(errs...))
	sumsTo(t, next)
}

func TestResultsAreErrorsWithNCCLsWords(t *testing.T) {
	l := library(t, 23007)
	for _, test := range []struct {
		code Code
		is   error
	}{
		{UnhandledCUDA, nil},
		{SystemError, nil},
		{InternalError, nil},
		{InvalidArgument, nil},
		{InvalidUsage, nil},
		{RemoteError, ErrRemote},
		{TimedOut, ErrTimeout},
	} {
		comms := world(t, l, 1, nil)
		b := upload(t, comms[0].dev, floats(8, 1, 0))
		release := fake.Turn(t, "fail_call", int64(test.code))
		_, err := comms[0].Do(soon(t), nil, AllReduce(b, b, Float32, Sum))
		release()
		var e *Error
		if !errors.As(err, &e) || e.Code != test.code || e.Op != "ncclAllReduce" || e.Last != "knob fail_call" || e.Text == "" {
			t.Fatalf("%v: %#v", test.code, err)
		}
		for _, sentinel := range []error{ErrRemote, ErrTimeout} {
			if errors.Is(err, sentinel) != errors.Is(test.is, sentinel) {
				t.Errorf("%v: is %v: %v", test.code, sentinel, errors.Is(err, sentinel))
			}
		}
		if _, err := comms[0].Do(soon(t), nil, AllReduce(b, b, Float32, Sum)); !errors.Is(err, comms[0].Err()) || err == nil {
			t.Errorf("%v: next call: %v", test.code, err)
		}
	}
	if s := fmt.Sprint(Code(99), RemoteError); !strings.Contains(s, "99") || !strings.Contains(s, "ncclRemoteError") {
		t.Error(s)
	}
}

func TestAnErrorInAGroupLeavesTheGroup(t *testing.T) {
	l := library(t, 23007)
	comms := world(t, l, 1, nil)
	b := upload(t, comms[0].dev, floats(8, 1, 0))
	release := fake.Turn(t, "fail_call", int64(InvalidArgument))
	_, err := comms[0].Do(soon(t), nil, Send(b, Float32, 0), Recv(b, Float32, 0))
	release()
	var e *Error
	if !errors.As(err, &e) || e.Op != "ncclSend" || comms[0].Err() == nil {
		t.Fatalf("%v", err)
	}
	ok(t, comms[0].Abort(soon(t), err))
	sumsTo(t, again(t, comms[0])) // on the same thread
}

// again creates a communicator of one rank on the device of another.
func again(t *testing.T, c *Comm) []*Comm {
	t.Helper()
	id, err := c.dev.lib.UniqueID()
	ok(t, err)
	next, err := c.dev.Init(soon(t), CommOptions{World: 1, ID: id})
	ok(t, err)
	ending(t, []*Comm{next})
	return []*Comm{next}
}

func TestAnErrorIsReportedWithinMillisecondsWithoutAWaiter(t *testing.T) {
	l := library(t, 23007)
	comms := world(t, l, 2, nil)
	fake.Turn(t, "error_code", int64(RemoteError))
	fake.Turn(t, "error_after", 1)
	began := time.Now()
	buffers := []Buffer{upload(t, comms[0].dev, floats(8, 1, 0)), upload(t, comms[1].dev, floats(8, 1, 0))}
	all(t, 2, func(i int) error {
		_, err := comms[i].Do(soon(t), nil, AllReduce(buffers[i], buffers[i], Float32, Sum))
		return err // the work has no waiter
	})
	for _, c := range comms {
		select {
		case <-c.lifetime.Done():
		case <-time.After(nccltest.Patience):
			t.Fatal("no failure was reported")
		}
	}
	t.Logf("known after %v", time.Since(began))
	for _, c := range comms {
		if !errors.Is(c.Err(), ErrRemote) || c.CanShrink() == nil {
			t.Errorf("rank %d: %v", c.Rank(), c.Err())
		}
	}
}

func TestACallBehindAStreamWaitsForItAndTheStreamForTheCall(t *testing.T) {
	l := library(t, 23007)
	comms := world(t, l, 1, nil)
	c := comms[0]
	ctx := soon(t)
	mine, err := c.dev.NewStream(ctx)
	ok(t, err)
	defer func() { ok(t, mine.Close(soon(t))) }()
	torch := c.dev.StreamOf(mine.handle) // as if created by a framework
	source, target := upload(t, c.dev, floats(64, 1, 1)), upload(t, c.dev, floats(64, 0, 0))
	after := upload(t, c.dev, floats(64, 0, 0))

	release := fake.Turn(t, "hold_copies", 1)
	ok(t, torch.Copy(ctx, target, source)) // the producer, which hangs for now
	w, err := c.Do(ctx, torch, AllReduce(target, target, Float32, Average))
	ok(t, err)
	ok(t, w.Before(ctx, torch))
	ok(t, torch.Copy(ctx, after, target)) // the consumer
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	if err := w.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call did not wait for the stream: %v", err)
	}
	cancel()
	release()
	ok(t, w.Wait(ctx)) // a wait that timed out may be repeated
	ok(t, w.Wait(ctx))
	ok(t, w.Before(ctx, torch))
	ok(t, torch.Wait(ctx))
	if !slices.Equal(download(t, after), floats(64, 1, 1)) {
		t.Error("the consumer ran before the call")
	}
}

func TestACommunicatorMayUseTheCallersStream(t *testing.T) {
	l := library(t, 23007)
	d := device(t, l, 0)
	id, err := l.UniqueID()
	ok(t, err)
	c, err := d.Init(soon(t), CommOptions{World: 1, ID: id, Stream: d.StreamOf(0)})
	ok(t, err)
	ending(t, []*Comm{c})
	if c.stream.handle != 0 {
		t.Error("another stream")
	}
	sumsTo(t, []*Comm{c})
}

func TestTheEndOfAContextInALaunchFailsTheCommunicator(t *testing.T) {
	l := library(t, 23007)
	comms := world(t, l, 1, nil)
	c := comms[0]
	b := upload(t, c.dev, floats(8, 1, 0))
	release := fake.Turn(t, "in_progress", 1<<30)
	ctx, cancel := context.WithTimeout(soon(t), 20*time.Millisecond)
	defer cancel()
	_, err := c.Do(ctx, nil, AllReduce(b, b, Float32, Sum))
	release()
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(c.Err(), context.DeadlineExceeded) {
		t.Errorf("%v; then %v", err, c.Err())
	}
	if _, err := c.Do(soon(t), nil, AllReduce(b, b, Float32, Sum)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the next call: %v", err)
	}
}

func TestPatienceBoundsEveryStep(t *testing.T) {
	l := library(t, 23007)
	comms := world(t, l, 2, func(_ int, o *CommOptions) { o.Timeout = time.Second })
	c := comms[0]
	b := upload(t, c.dev, floats(8, 1, 0))
	w, err := c.Do(context.Background(), nil, AllReduce(b, b, Float32, Sum)) // the other rank does not join
	ok(t, err)
	if err := w.Wait(context.Background()); !errors.Is(err, ErrTimeout) || c.Err() != nil {
		t.Errorf("%v; then %v", err, c.Err())
	}
	other := upload(t, comms[1].dev, floats(8, 1, 0))
	ok(t, reduceInPlace(soon(t), comms[1], other)) // now it joins
	ok(t, w.Wait(context.Background()))

	id, err := l.UniqueID()
	ok(t, err)
	_, err = c.dev.Init(context.Background(), CommOptions{World: 2, ID: id, Timeout: 50 * time.Millisecond})
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("nobody else came: %v", err)
	}
}

func TestWhatAVersionLacksIsRefusedWithTheVersionThatHasIt(t *testing.T) {
	l := library(t, 21403)
	c := world(t, l, 1, nil)[0]
	if err := c.CanShrink(); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "2.27.3") || !strings.Contains(err.Error(), "2.14.3") {
		t.Error(err)
	}
	if l.ReformsBy() != ByNewID || !errors.Is(c.CanShrink(), ErrNeedsID) {
		t.Errorf("%s, %v", l.ReformsBy(), c.CanShrink())
	}
	present := 0
	for _, f := range l.Features() {
		if f.Present {
			present++
		}
	}
	if present != 1 || l.Version().String() != "2.14.3" {
		t.Errorf("%v has %v", l.Version(), l.Features())
	}
}

func TestFeaturesArePresentFromTheirVersionOn(t *testing.T) {
	for _, version := range []int{21403, 21801, 22703, 22809, 22902, 23007} {
		l := library(t, version)
		for _, f := range l.Features() {
			if f.Present != (l.Version() >= f.Since) {
				t.Errorf("%v: %s, since %v: %v", l.Version(), f.Name, f.Since, f.Present)
			}
		}
	}
	if old := fmt.Sprint(Version(2804), Version(21100)); old != "2.8.4 2.11.0" {
		t.Error(old)
	}
}
