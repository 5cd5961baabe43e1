package nccl

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// negate inverts every byte, in place of the network's reduction.
func negate(chunk []byte, _ int) error {
	for i := range chunk {
		chunk[i] = ^chunk[i]
	}
	return nil
}

func TestAStageTakesEveryChunkThroughTheHostInOrder(t *testing.T) {
	l := library(t, 23007)
	d := device(t, l, 0)
	for _, test := range []struct{ size, chunk, depth int }{
		{1, 100, 3}, {100, 100, 3}, {101, 100, 3}, {1000, 100, 3}, {1005, 100, 1}, {299, 100, 8}, {0, 100, 2},
	} {
		s, err := d.NewStage(soon(t), StageOptions{ChunkBytes: test.chunk, Depth: test.depth})
		ok(t, err)
		want := make([]byte, test.size)
		for i := range want {
			want[i] = byte(i * 7)
		}
		var b Buffer
		if test.size > 0 {
			b = upload(t, d, want)
		}
		for range 2 { // a stage can be used again
			next := 0
			ok(t, s.Run(soon(t), nil, b, func(chunk []byte, offset int) error {
				if offset != next || !slices.Equal(chunk, want[offset:min(offset+test.chunk, test.size)]) {
					t.Errorf("%+v: chunk at %d of %d bytes, %d expected", test, offset, len(chunk), next)
				}
				next += len(chunk)
				return negate(chunk, offset)
			}))
			_ = negate(want, 0)
			if next != test.size || test.size > 0 && !slices.Equal(download(t, b), want) {
				t.Errorf("%+v: %d bytes went through, and not right", test, next)
			}
		}
		ok(t, s.Close(soon(t)))
	}
}

func TestAStageReadsAheadWhileTheHostWorks(t *testing.T) {
	l := library(t, 23007)
	d := device(t, l, 0)
	s, err := d.NewStage(soon(t), StageOptions{ChunkBytes: 64, Depth: 3})
	ok(t, err)
	defer func() { ok(t, s.Close(soon(t))) }()
	b := upload(t, d, make([]byte, 640))
	fake.Calls()
	var down, up int
	ok(t, s.Run(soon(t), nil, b, func(_ []byte, offset int) error {
		for _, call := range fake.Calls() {
			if call == "DtoH" {
				down++
			}
			if call == "HtoD" {
				up++
			}
		}
		if i := offset / 64; down != min(i+3, 10) || up != i {
			t.Errorf("chunk %d: %d were fetched and %d brought back", i, down, up)
		}
		return nil
	}))
}

func TestAStageWaitsForTheStreamBefore(t *testing.T) {
	l := library(t, 23007)
	d := device(t, l, 0)
	ctx := soon(t)
	s, err := d.NewStage(ctx, StageOptions{ChunkBytes: 64})
	ok(t, err)
	defer func() { ok(t, s.Close(soon(t))) }()
	before, err := d.NewStream(ctx)
	ok(t, err)
	defer func() { ok(t, before.Close(soon(t))) }()
	source, b := upload(t, d, floats(100, 1, 1)), upload(t, d, floats(100, 0, 0))
	ok(t, before.Copy(ctx, b, source))
	ok(t, s.Run(ctx, before, b, func([]byte, int) error { return nil }))
	if !slices.Equal(download(t, b), floats(100, 1, 1)) {
		t.Error("the stage did not wait")
	}
}

func TestAStageEndsWithTheErrorOfTheHostAndOfTheDriver(t *testing.T) {
	l := library(t, 23007)
	d := device(t, l, 0)
	s, err := d.NewStage(soon(t), StageOptions{ChunkBytes: 64})
	ok(t, err)
	defer func() { ok(t, s.Close(soon(t))) }()
	b := upload(t, d, make([]byte, 1000))
	broken := errors.New("the network is gone")
	if err := s.Run(soon(t), nil, b, func(_ []byte, offset int) error {
		if offset > 300 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
	release := fake.Turn(t, "fail_copy", 2)
	var failed *DriverError
	err = s.Run(soon(t), nil, b, negate)
	if release(); !errors.As(err, &failed) || failed.Name != "CUDA_ERROR_OUT_OF_MEMORY" {
		t.Error(err)
	}

	release = fake.Turn(t, "hold_copies", 1)
	ctx, cancel := context.WithTimeout(soon(t), 20*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, nil, b, negate) }()
	<-ctx.Done()
	release() // else it would wait ten seconds for copies that do not end
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	ok(t, s.Run(soon(t), nil, b, negate))
	if !slices.Contains(download(t, b), 0xff) {
		t.Error("it does not work afterwards")
	}
}

func TestCopiesNeedMemoryOfTheRightKind(t *testing.T) {
	l := library(t, 23007)
	d, other := device(t, l, 0), device(t, l, 1)
	ctx := soon(t)
	s, err := d.NewStream(ctx)
	ok(t, err)
	defer func() { ok(t, s.Close(soon(t))) }()
	elsewhere, err := other.NewStream(ctx)
	ok(t, err)
	defer func() { ok(t, elsewhere.Close(soon(t))) }()
	b := upload(t, d, make([]byte, 64))
	for name, err := range map[string]error{
		"another device":  elsewhere.ToHost(ctx, make([]byte, 8), b),
		"too long":        s.ToDevice(ctx, b, make([]byte, 65)),
		"copy too long":   s.Copy(ctx, b.Slice(0, 8), b),
		"no bytes":        func() error { _, err := d.Alloc(ctx, 0); return err }(),
		"no pinned bytes": func() error { _, err := d.AllocHost(ctx, -1); return err }(),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	twice, err := d.Alloc(ctx, 8)
	ok(t, err)
	ok(t, d.Free(ctx, twice))
	if err := d.Free(ctx, twice); !errors.Is(err, ErrInvalid) {
		t.Errorf("freed twice: %v", err)
	}
	var failed *DriverError
	if _, err := d.Alloc(ctx, 1<<40); !errors.As(err, &failed) || failed.Name != "CUDA_ERROR_OUT_OF_MEMORY" {
		t.Error(err)
	}
}
