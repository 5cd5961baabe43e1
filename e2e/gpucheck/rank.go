package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/gpu"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/tcp"
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
	r := &rig{checkedGPU: g, comm: c}
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
	var next *nccl.Comm
	if what == killReform {
		way = r.Library().ReformsBy()
		next, err = r.comm.Reform(ctx, []int{0})
		if errors.Is(err, nccl.ErrNeedsID) {
			way, err = nccl.Way(fmt.Sprintf("%s, for: %v", nccl.ByNewID, err)), nil
		}
	}
	if err == nil && next == nil {
		if err = r.comm.Abort(ctx, errors.New("a rank is lost")); err == nil {
			next, err = r.Init(ctx, nccl.CommOptions{World: 1, ID: id})
		}
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

// engines checks the inter-node path: two processes, each a node with one GPU, which is the same
// one. Each has an NCCL of one rank; the rest goes through pinned memory and over a socket.
func engines(t *table, s settings) {
	a := arrangement{name: "engine, two nodes", devices: [2]int{s.device, s.device}}
	detail, err := a.play(s, engineSum)
	if t.must(a.name+": sum", detail, err) {
		detail, err = a.play(s, engineKill)
		t.must(a.name+": kill, next", detail, err)
	}
}

// node is one of the ranks.
type node struct {
	*rig
	rank     int
	bytes    int
	endpoint *collective.Endpoint
	comm     *collective.Communicator
	engine   *gpu.Engine
	buffer   nccl.Buffer
}

func isEngine(what string) bool { return what == engineSum || what == engineKill }

func playEngine(ctx context.Context, l *nccl.Library, s settings, rank int, what string) error {
	g, err := openGPU(ctx, l, s.device)
	if err != nil {
		return err
	}
	transport, err := tcp.Listen(tcp.Options{})
	if err != nil {
		return err
	}
	n := &node{rig: &rig{checkedGPU: g}, rank: rank, bytes: s.bytes, endpoint: collective.NewEndpoint(transport)}
	fmt.Println("id", n.endpoint.Addr())
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return errors.New("the check is gone")
	}
	if err := n.join(ctx, 1, rank, strings.Fields(in.Text())); err != nil {
		return err
	}
	if err := n.sums(ctx, 2); err != nil {
		return err
	}
	if what == engineKill {
		if err := n.next(ctx); err != nil {
			return err
		}
	}
	return errors.Join(n.engine.Close(ctx), n.comm.Close(), n.endpoint.Close(), g.Free(ctx, n.send), g.close(ctx))
}

// join creates the communicator and the engine of a generation.
func (n *node) join(ctx context.Context, generation uint64, rank int, addresses []string) (err error) {
	n.comm, err = collective.New(ctx, collective.Options{
		Job: "gpucheck", Generation: generation, Rank: rank, World: len(addresses), Endpoint: n.endpoint,
		Peers: func(_ context.Context, rank int) (string, error) { return addresses[rank], nil },
	})
	if err != nil {
		return err
	}
	if n.engine != nil {
		n.engine, err = n.engine.Next(ctx, n.comm, 0, 1)
		return err
	}
	if n.engine, err = gpu.New(ctx, n.comm, gpu.Options{Device: n.Device, Always: true}); err != nil {
		return err
	}
	if n.send, err = n.Alloc(ctx, n.bytes); err != nil {
		return err
	}
	// As a framework passes it: a pointer and a size.
	n.buffer, err = n.Buffer(ctx, n.send.Pointer(), n.send.Bytes())
	return err
}

// sums reduces a pattern, checks it, and reports the speed.
func (n *node) sums(ctx context.Context, world float32) error {
	const times = 5
	var took time.Duration
	for range times {
		if err := n.fill(ctx, n.send, ramp(1)); err != nil {
			return err
		}
		began := time.Now()
		if err := n.allreduce(ctx); err != nil {
			return err
		}
		took += time.Since(began)
		if err := n.verify(ctx, n.send, ramp(world)); err != nil {
			return err
		}
	}
	fmt.Printf("summed %d bytes in %.2f ms, mean of %d, checked: %s\n",
		n.bytes, took.Seconds()*1000/times, times, n.engine.Describe())
	return nil
}

func (n *node) allreduce(ctx context.Context) error {
	return n.engine.Allreduce(ctx, nil, n.buffer, kernel.Float32, collective.Sum).Wait(ctx)
}

// next continues to reduce until the other rank is lost, and continues alone.
func (n *node) next(ctx context.Context) error {
	var err error
	for err == nil {
		err = n.allreduce(ctx)
	}
	var lost *collective.PeerLostError
	if !errors.As(err, &lost) || lost.Rank != 1-n.rank {
		return fmt.Errorf("the other was killed, and not named: %w", err)
	}
	fmt.Println("seen", fmt.Sprintf("rank %d named", lost.Rank))
	if err := n.comm.Close(); err != nil {
		return err
	}
	began := time.Now()
	if err := n.join(ctx, 2, 0, []string{n.endpoint.Addr()}); err != nil {
		return err
	}
	recovered := took(began)
	if err := n.sums(ctx, 1); err != nil {
		return err
	}
	fmt.Println("recovered", recovered, "and then:", n.engine.Describe())
	return nil
}
