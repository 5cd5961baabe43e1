package collective

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
)

// wantInvalid checks that err says that an argument is wrong, and which.
func wantInvalid(t *testing.T, what string, err error, names ...string) {
	t.Helper()
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %q does not name %s", what, err, name)
		}
	}
}

// wrongOptions are changes of valid options of rank 1 of 3, by what the error must name.
var wrongOptions = []struct {
	names  string
	change func(*Options)
}{
	{"Job", func(o *Options) { o.Job = "" }},
	{"Job", func(o *Options) { o.Job = strings.Repeat("x", 256) }},
	{"World", func(o *Options) { o.World = 0 }},
	{"World", func(o *Options) { o.World = -1 }},
	{"World", func(o *Options) { o.World = control.MaxWorld + 1 }},
	{"Rank", func(o *Options) { o.Rank = 3 }},
	{"Rank", func(o *Options) { o.Rank = -1 }},
	{"Endpoint", func(o *Options) { o.Endpoint = nil }},
	{"Peers", func(o *Options) { o.Peers = nil }},
	{"StallAfter", func(o *Options) { o.StallAfter = -1 }},
	{"StallAfter", func(o *Options) { o.StallAfter = time.Millisecond }},
	{"ChunkBytes", func(o *Options) { o.ChunkBytes = -1 }},
	{"ChunkBytes", func(o *Options) { o.ChunkBytes = frame.MaxMessage + 1 }},
	{"Streams", func(o *Options) { o.Streams = -1 }},
	{"Streams", func(o *Options) { o.Streams = control.MaxStreams + 1 }},
	{"LocalSize", func(o *Options) { o.LocalSize = -1 }},
	{"LocalSize", func(o *Options) { o.LocalSize = 4 }},
	{"LocalSize", func(o *Options) { o.LocalSize, o.LocalRank = math.MaxInt, 1 }},
	{"LocalSize", func(o *Options) { o.LocalSize = 3 }}, // ranks 1 to 3
	{"LocalRank", func(o *Options) { o.LocalRank, o.LocalSize = -1, 2 }},
	{"LocalRank", func(o *Options) { o.LocalRank, o.LocalSize = 2, 2 }},
	{"LocalRank", func(o *Options) { o.LocalRank, o.LocalSize = 2, 3 }}, // ranks -1 to 1
	{"LocalRank", func(o *Options) { o.LocalRank = 1 }},                 // of none
	{"LocalRank", func(o *Options) { o.LocalRank = -1 }},
	{"Generation", func(o *Options) { o.Generation = 1 }}, // is over
}

func TestEveryWrongOptionIsNamed(t *testing.T) {
	eps := endpoints(t, fabrics()[0], 3)
	closeAll(form(t, eps, 1, nil))
	for _, wrong := range wrongOptions {
		o := options(eps, 2, 1)
		wrong.change(&o)
		_, err := New(soon(t), o)
		wantInvalid(t, wrong.names, err, wrong.names)
	}
	// None of them has used the generation up.
	closeAll(form(t, eps, 2, nil))
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	comms := group(t, fabrics()[1], 2, nil)
	ctx, c := soon(t), comms[0]
	untyped, odd := Tensor{Data: make([]byte, 8)}, Tensor{kernel.Int32, make([]byte, 7)}
	beyond := Tensor{kernel.Float64 + 1, make([]byte, 8)}
	two := Of([]int32{1, 2})
	for name, err := range map[string]error{
		"reduction": Allreduce(ctx, c, []float32{1}, 7),
		"root":      Broadcast[uint8](ctx, c, nil, 2),
		"root -1":   Reduce(ctx, c, []float32{1}, Sum, -1),
		"recv":      Allgather(ctx, c, []float32{1}, nil),
		"self":      c.Send(ctx, 0, nil),
		"rank":      c.Recv(ctx, -1, nil),
		"rank 2":    c.Send(ctx, 2, nil),

		"type":           c.Allreduce(ctx, untyped, Sum),
		"type beyond":    c.Broadcast(ctx, beyond, 0),
		"type of send":   c.Alltoall(ctx, untyped, untyped, nil, nil),
		"type of gather": c.Allgather(ctx, untyped, Tensor{Data: make([]byte, 16)}),
		"odd":            c.ReduceScatter(ctx, odd, Sum),
		"odd in gather":  c.Allgather(ctx, Tensor{kernel.Int32, make([]byte, 2)}, Tensor{kernel.Int32, make([]byte, 4)}),
		"odd recv":       c.Alltoall(ctx, two, odd, nil, nil),
		"two types":      c.Alltoall(ctx, two, Of([]float32{1, 2}), nil, nil),
		"uneven":         c.Alltoall(ctx, Of([]int32{1}), two, nil, nil),
		"few counts":     c.Alltoall(ctx, two, two, []int{2}, nil),
		"negative":       c.Alltoall(ctx, two, two, []int{3, -1}, nil),
		"wrong total":    c.Alltoall(ctx, two, two, nil, []int{1, 2}),
		"overflow":       c.Alltoall(ctx, two, two, []int{math.MaxInt, math.MaxInt}, []int{math.MaxInt, math.MaxInt}),
		"own block":      c.Alltoall(ctx, two, two, []int{2, 0}, []int{1, 1}),
		"narrow of int":  c.AllreduceAs(ctx, kernel.Float16, two, Sum),
		"as float64":     c.AllreduceAs(ctx, kernel.Float64, Of([]float32{1}), Sum),
		"as nothing":     c.AllreduceAs(ctx, 0, Of([]float32{1}), Sum),
	} {
		wantInvalid(t, name, err)
	}
	// Nothing was sent.
	mustAll(t, 2, func(r int) error { return comms[r].Barrier(ctx) })
}

// TestWhatRanksMustHaveAlikeIsChecked: the handshake refuses a peer that is set differently.
func TestWhatRanksMustHaveAlikeIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"ChunkBytes":     func(o *Options) { o.ChunkBytes = 1 << 20 },
		"Streams":        func(o *Options) { o.Streams = 2 },
		"StallAfter":     func(o *Options) { o.StallAfter = time.Second },
		"World":          func(o *Options) { o.World = 3 },
		"token":          func(o *Options) { o.Token = "other" },
		"NoSharedMemory": func(o *Options) { o.NoSharedMemory = true },
	} {
		eps := endpoints(t, fabrics()[2], 2)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		errs := each(2, func(rank int) error {
			o := options(eps, 1, rank)
			if rank == 1 {
				change(&o)
			}
			c, err := New(ctx, o)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		cancel()
		refused := false
		for rank, err := range errs {
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: rank %d: %v", name, rank, err)
			}
			refused = refused || errors.Is(err, ErrRefused) && strings.Contains(err.Error(), name)
		}
		if !refused {
			t.Errorf("%s: nobody was refused for it: %v", name, errs)
		}
	}
}
