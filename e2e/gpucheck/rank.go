package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/collective/nccl"
)

// rankCommand is the first argument of a process that is one of two ranks.
const rankCommand = "rank"

// Roles of the two ranks.
const (
	toTheEnd   = "sum"    // reduce, and close
	killAbort  = "abort"  // reduce; the other is killed; abort, and start alone with a fresh id
	killReform = "reform" // the same, but leave the lost rank out

	engineSum  = "engine"      // reduce with an Engine, and close
	engineKill = "engine kill" // the same; the other is killed; go on with Next
)

// playRank runs such a process. It prints its results, with a keyword first.
func playRank(args []string) error {
	var s settings
	var rank int
	var what, id string
	flags := s.flags(rankCommand, "")
	flags.IntVar(&rank, "rank", 0, "")
	flags.StringVar(&what, "do", toTheEnd, "")
	flags.StringVar(&id, "id", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := s.within()
	defer cancel()
	l, err := s.open()
	if err != nil {
		return err
	}
	if isEngine(what) {
		return playEngine(ctx, l, s, rank, what)
	}
	o := nccl.CommOptions{Rank: rank, World: 2}
	if id == "" {
		if o.ID, err = l.UniqueID(); err != nil {
			return err
		}
		fmt.Println("id", hex.EncodeToString(o.ID[:]))
	} else if b, err := hex.DecodeString(id); err != nil || len(b) != len(o.ID) {
		return fmt.Errorf("id %q: %w", id, errors.Join(err, nccl.ErrInvalid))
	} else {
		o.ID = nccl.UniqueID(b)
	}
	g, err := openGPU(ctx, l, s.device)
	if err != nil {
		return err
	}
	began := time.Now()
	c, err := g.Init(ctx, o)
	if err != nil {
		return err
	}
	connected := took(began)
	r := &rig{gpu: g, comm: c}
	if r.send, err = g.Alloc(ctx, s.bytes); err != nil {
		return err
	}
	r.recv = r.send
	began = time.Now()
	for range 10 {
		if err := r.sum(ctx, 2); err != nil {
			return err
		}
	}
	fmt.Println("summed", connected, "to connect, 10 sums of", s.bytes, "bytes, checked,", took(began))
	if what == toTheEnd {
		return errors.Join(c.Close(ctx), g.Free(ctx, r.send), g.close(ctx))
	}
	return r.loss(ctx, what, s.notice)
}

// sum reduces a pattern over world ranks and checks it.
func (r *rig) sum(ctx context.Context, world float32) error {
	if err := r.fill(ctx, r.send, ramp(1)); err != nil {
		return err
	}
	if err := r.do(ctx, nccl.AllReduce(r.send, r.send, nccl.Float32, nccl.Sum)); err != nil {
		return err
	}
	return r.verify(ctx, r.send, ramp(world))
}

// loss reduces until the other rank is lost, and recovers.
func (r *rig) loss(ctx context.Context, what string, notice time.Duration) error {
	var began time.Time
	var err error
	for err == nil {
		began = time.Now()
		op, cancel := context.WithTimeout(ctx, notice)
		err = r.do(op, nccl.AllReduce(r.send, r.send, nccl.Float32, nccl.Sum))
		cancel()
	}
	seen := fmt.Sprintf("NCCL did not notice within %v", notice)
	if !errors.Is(err, context.DeadlineExceeded) {
		seen = fmt.Sprintf("NCCL noticed after %s: %v", took(began), err)
	}
	fmt.Println("seen", seen)
	began = time.Now()
	id, err := r.Library().UniqueID()
	if err != nil {
		return err
	}
	way := nccl.ByNewID
	s := nccl.Survivors{Ranks: []int{0}, ID: &id}
	if what == killReform {
		s.ID, way = nil, r.Library().ReformsBy()
	}
	next, err := r.comm.Reform(ctx, s)
	if errors.Is(err, nccl.ErrNeedsID) {
		way = nccl.Way(fmt.Sprintf("%s, for: %v", nccl.ByNewID, err))
		s.ID = &id
		next, err = r.comm.Reform(ctx, s)
	}
	if err != nil {
		return err
	}
	took := took(began)
	r.comm = next
	if err := r.sum(ctx, 1); err != nil {
		return err
	}
	fmt.Println("recovered", took, "by:", way)
	return errors.Join(next.Close(ctx), r.Free(ctx, r.send), r.close(ctx))
}
