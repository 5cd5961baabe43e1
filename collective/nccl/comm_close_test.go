package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

var errCaller = errors.New("the control plane said so")

func TestAbortEndsACollectiveThatHangs(t *testing.T) {
	l := library(t, 23007)
	comms := world(t, l, 2, nil)
	c := comms[0]
	b := upload(t, c.dev, floats(8, 1, 0))
	w, err := c.Do(soon(t), nil, AllReduce(b, b, Float32, Sum)) // the other does not come
	ok(t, err)
	failed := make(chan error, 1)
	go func() { failed <- w.Wait(soon(t)) }()
	ok(t, c.Abort(soon(t), errCaller))
	err = <-failed
	if !errors.Is(err, ErrAborted) || !errors.Is(err, errCaller) {
		t.Error(err)
	}
	if _, err := c.Do(soon(t), nil, AllReduce(b, b, Float32, Sum)); !errors.Is(err, ErrAborted) {
		t.Errorf("the next call: %v", err)
	}
	ok(t, c.Abort(soon(t), nil)) // again, and as a close
	ok(t, c.Close(soon(t)))
	late, cancel := context.WithCancel(context.Background())
	cancel()
	ok(t, comms[1].Abort(late, errCaller)) // no time left is no reason not to
	sumsTo(t, again(t, c))
}

func TestAbortEndsAnInitThatHangs(t *testing.T) {
	fake.Turn(t, "hang_init", 1)
	l := library(t, 23007)
	d := device(t, l, 0)
	id, err := l.UniqueID()
	ok(t, err)
	ctx, cancel := context.WithCancelCause(soon(t))
	inits := make(chan error, 1)
	go func() {
		_, err := d.Init(ctx, CommOptions{World: 1, ID: id})
		inits <- err
	}()
	waitFor(t, func() bool { return fake.Living("communicators") > 0 })
	cancel(errCaller)
	if err := <-inits; !errors.Is(err, errCaller) || errors.Is(err, ErrStuck) {
		t.Error(err)
	}
}

func TestAnAbortThatHangsSaysThatTheProcessMustRestart(t *testing.T) {
	l := library(t, 23007)
	id, err := l.UniqueID()
	ok(t, err)
	c, err := device(t, l, 0).Init(soon(t), CommOptions{World: 1, ID: id})
	ok(t, err)
	release := fake.Turn(t, "hang_abort", 1)
	ctx, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	err = c.Abort(ctx, errCaller)
	var stuck *StuckError
	if !errors.As(err, &stuck) || stuck.Op != "ncclCommAbort" || !errors.Is(err, ErrStuck) {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := c.Close(soon(t)); !errors.Is(err, ErrStuck) {
		t.Errorf("a second end: %v", err)
	}
	release()
	waitFor(t, func() bool { return fake.Living("communicators") == 0 })
	ok(t, c.stream.Close(soon(t)))
}

func TestAbortFreesAThreadThatHangsInACall(t *testing.T) {
	for name, ops := range map[string]func(b Buffer) []Operation{
		"alone": func(b Buffer) []Operation { return []Operation{AllReduce(b, b, Float32, Sum)} },
		// The thread can neither end the group, for it names a freed communicator, nor leave it.
		"in a group": func(b Buffer) []Operation {
			return []Operation{Send(b, Float32, 0), Recv(b, Float32, 0)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := library(t, 23007)
			c := world(t, l, 1, nil)[0]
			b := upload(t, c.dev, floats(8, 1, 0))
			fake.Calls()
			release := fake.Turn(t, "hang_call", 1)
			failed := make(chan error, 1)
			go func() {
				_, err := c.Do(soon(t), nil, ops(b)...)
				failed <- err
			}()
			var calls []string
			waitFor(t, func() bool {
				calls = append(calls, fake.Calls()...)
				return slices.Contains(calls, "AllReduce") || slices.Contains(calls, "Send")
			})
			ok(t, c.Abort(soon(t), errCaller))
			release()
			if err := <-failed; !errors.Is(err, ErrAborted) {
				t.Error(err)
			}
			sumsTo(t, again(t, c)) // the device works on
		})
	}
}

func TestACallThatNeverReturnsIsReportedAsStuck(t *testing.T) {
	l := library(t, 23007)
	c := world(t, l, 1, nil)[0]
	b := upload(t, c.dev, floats(8, 1, 0))
	release := fake.Turn(t, "hang_call", 1)
	ctx, cancel := context.WithTimeout(soon(t), 20*time.Millisecond)
	defer cancel()
	_, err := c.Do(ctx, nil, AllReduce(b, b, Float32, Sum))
	if !errors.Is(err, ErrStuck) || !errors.Is(c.Err(), ErrStuck) {
		t.Errorf("%v; then %v", err, c.Err())
	}
	release()
}

func TestCloseWaitsForWhatWasLaunched(t *testing.T) {
	l := library(t, 22809)
	comms := world(t, l, 2, nil)
	buffers := []Buffer{upload(t, comms[0].dev, floats(5000, 1, 0)), upload(t, comms[1].dev, floats(5000, 2, 0))}
	all(t, 2, func(i int) error {
		if _, err := comms[i].Do(soon(t), nil, AllReduce(buffers[i], buffers[i], Float32, Sum)); err != nil {
			return err
		}
		return comms[i].Close(soon(t))
	})
	for i, b := range buffers {
		if !slices.Equal(download(t, b), floats(5000, 3, 0)) {
			t.Errorf("rank %d: not all was done", i)
		}
	}
	if _, err := comms[0].Do(soon(t), nil, AllReduce(buffers[0], buffers[0], Float32, Sum)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseAbortsWhenTheOthersDoNotClose(t *testing.T) {
	l := library(t, 22809)
	comms := world(t, l, 2, nil)
	ctx, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
	defer cancel()
	if err := comms[0].Close(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStuck) {
		t.Error(err)
	}
	ok(t, comms[1].Abort(soon(t), errCaller))
}

func TestAClosedDeviceSaysSo(t *testing.T) {
	l := library(t, 23007)
	d, err := l.OpenDevice(soon(t), 1)
	ok(t, err)
	ok(t, d.Close(soon(t)))
	if _, err := d.NewStream(soon(t)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := l.OpenDevice(soon(t), 77); fmt.Sprint(err) != "device 77: cuDeviceGet: CUDA_ERROR_INVALID_DEVICE (101)" {
		t.Error(err)
	}
}
