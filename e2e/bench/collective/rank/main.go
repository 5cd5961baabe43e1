// Command rank is one rank of the benchmark of collective operations: it reads all ranks' addresses
// from its input, runs the operations that its flags name and, on rank 0, prints a line for each
// size: bytes, then the minimum, the median and the maximum time of an operation in microseconds.
// Results are checked before they are timed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/tcp"
)

type config struct {
	rank, world int
	sizes       string
	budget      time.Duration
	over        string
	pace        int
	wire        string
	survivor    bool
	stall       time.Duration
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		os.Exit(1)
	}
}

func run() error {
	var c config
	flag.IntVar(&c.rank, "rank", 0, "of this process")
	flag.IntVar(&c.world, "world", 1, "number of ranks")
	flag.StringVar(&c.sizes, "sizes", "4,4096,65536,1048576,16777216,67108864", "bytes, separated by commas")
	flag.DurationVar(&c.budget, "budget", 300*time.Millisecond, "time for one size")
	flag.IntVar(&c.pace, "pace", 0, "bytes per second of each connection; 0 = no limit")
	flag.StringVar(&c.wire, "wire", "float32", "type of the elements on the wire: float32 or float16")
	flag.BoolVar(&c.survivor, "survive", false, "reduce the first size until a peer is lost, and go on without it")
	flag.DurationVar(&c.stall, "stall", 0, "how long a peer may be silent; 0 = as the engine chooses")
	flag.StringVar(&c.over, "over", "tcp", "tcp, shm, or arena: shared memory, with buffers of the engine")
	flag.Parse()
	if !slices.Contains([]string{"tcp", "shm", "arena"}, c.over) || !slices.Contains([]string{"float32", "float16"}, c.wire) {
		return fmt.Errorf("-over %s -wire %s: give tcp, shm or arena, and float32 or float16", c.over, c.wire)
	}
	t, err := tcp.Listen(tcp.Options{BytesPerSecond: c.pace})
	if err != nil {
		return err
	}
	e := collective.NewEndpoint(t)
	defer func() { _ = e.Close() }()
	fmt.Println("addr", e.Addr())
	lines := bufio.NewReader(os.Stdin)
	line, err := lines.ReadString('\n')
	if err != nil {
		return err
	}
	addrs := strings.Fields(line)
	o := collective.Options{
		Job: "bench", Generation: 1, Rank: c.rank, World: c.world, Endpoint: e,
		StallAfter: c.stall,
		Peers:      func(_ context.Context, r int) (string, error) { return addrs[r], nil },
	}
	if c.over != "tcp" {
		o.LocalRank, o.LocalSize = c.rank, c.world
	}
	ctx := context.Background()
	if c.survivor {
		first, _, _ := strings.Cut(c.sizes, ",")
		bytes, err := strconv.Atoi(first)
		if err != nil {
			return err
		}
		return c.survive(ctx, lines, o, bytes)
	}
	comm, err := collective.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = comm.Close() }()
	for _, s := range strings.Split(c.sizes, ",") {
		bytes, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		if err := c.measure(ctx, comm, e, bytes); err != nil {
			return err
		}
	}
	return nil
}

func (o config) measure(ctx context.Context, c *collective.Communicator, e *collective.Endpoint, bytes int) error {
	n, world := bytes/4, c.World()
	v := make([]float32, n)
	if o.over == "arena" {
		p, err := e.Alloc(bytes)
		if err != nil {
			return err
		}
		defer e.Free(p)
		v = unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), n)
	}
	for i := range v {
		v[i] = float32(i%97 + c.Rank())
	}
	reduce := func() error { return collective.Allreduce(ctx, c, v, collective.Sum) }
	if o.wire == "float16" {
		reduce = func() error { return c.AllreduceAs(ctx, kernel.Float16, collective.Of(v), collective.Sum) }
	}
	if err := reduce(); err != nil {
		return err
	}
	for i := range v {
		if want := float32(i%97*world + world*(world-1)/2); v[i] != want {
			return fmt.Errorf("%d bytes: element %d is %v, not %v", bytes, i, v[i], want)
		}
	}
	clear(v)
	op := func() (time.Duration, error) {
		t := time.Now()
		err := reduce()
		return time.Since(t), err
	}
	var once time.Duration
	for range 4 {
		d, err := op()
		if err != nil {
			return err
		}
		once = d
	}
	// All ranks must run the same number of operations.
	count := []int64{max(7, min(20000, int64(o.budget/max(once, 1))))}
	if err := collective.Broadcast(ctx, c, count, 0); err != nil {
		return err
	}
	times := make([]time.Duration, count[0])
	for i := range times {
		d, err := op()
		if err != nil {
			return err
		}
		times[i] = d
	}
	if c.Rank() == 0 {
		slices.Sort(times)
		us := func(d time.Duration) float64 { return float64(d) / 1e3 }
		fmt.Printf("%d %.2f %.2f %.2f\n", bytes, us(times[0]), us(times[len(times)/2]), us(times[len(times)-1]))
	}
	return nil
}

// survive reduces until a peer is lost, prints which and when, and continues with the others in the
// generation that the next line of the input describes: its number, the rank and all addresses.
func (o config) survive(ctx context.Context, lines *bufio.Reader, options collective.Options, bytes int) error {
	v := make([]float32, bytes/4)
	for {
		comm, err := collective.New(ctx, options)
		if err != nil {
			return err
		}
		err = o.work(ctx, comm, v)
		at := time.Now().UnixNano()
		var lost *collective.PeerLostError
		if !errors.As(err, &lost) {
			return err
		}
		fmt.Println("lost", lost.Rank, at)
		_ = comm.Close()
		line, _ := lines.ReadString('\n')
		if line == "" {
			return nil // done
		}
		if _, err := fmt.Sscan(line, &options.Generation, &options.Rank); err != nil {
			return err
		}
		addrs := strings.Fields(line)[2:]
		options.World = len(addrs)
		options.Peers = func(_ context.Context, r int) (string, error) { return addrs[r], nil }
		if options.LocalSize > 0 {
			options.LocalRank, options.LocalSize = options.Rank, options.World
		}
	}
}

// work reduces, checks, prints the time of the first result, and continues to reduce.
func (o config) work(ctx context.Context, c *collective.Communicator, v []float32) error {
	for k := range v {
		v[k] = float32(c.Rank() + 1)
	}
	if err := collective.Allreduce(ctx, c, v, collective.Sum); err != nil {
		return err
	}
	want := float32(c.World() * (c.World() + 1) / 2)
	for k := range v {
		if v[k] != want {
			return fmt.Errorf("element %d is %v, not %v", k, v[k], want)
		}
	}
	fmt.Println("good", c.Generation(), time.Now().UnixNano())
	clear(v)
	for {
		if err := collective.Allreduce(ctx, c, v, collective.Sum); err != nil {
			return err
		}
	}
}
