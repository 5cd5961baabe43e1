package collective

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
)

// peer is an implementation of allreduce.
type peer struct {
	name  string
	start func(ctx context.Context, b *bench, world int) (*ranks, error)
	sizes string // empty = all
}

// ranks are the processes of one run; the first one prints the results.
type ranks struct {
	all    []*cluster.Dialog
	addrs  []string     // of this project's
	stderr bytes.Buffer // errors of all
}

// line is rank 0's result for a size, in microseconds.
type line struct {
	bytes            int
	min, median, max float64
}

//go:embed peers/mpi.c
var mpiSource []byte

//go:embed peers/torch_rank.py
var torchSource []byte

// prepare builds the programs of the peers.
func (b *bench) prepare(ctx context.Context) error {
	for name, source := range map[string][]byte{"torch_rank.py": torchSource, "mpi.c": mpiSource} {
		if err := os.WriteFile(b.file(name), source, 0o600); err != nil {
			return err
		}
	}
	if err := cluster.Build(b.dir, false, "e2e/bench/collective/rank"); err != nil {
		return err
	}
	if !slices.ContainsFunc(b.peers(), func(p peer) bool { return p.name == mpiTCP || p.name == mpiShared }) {
		return nil
	}
	_, err := cluster.Output(exec.CommandContext(ctx, "mpicc", "-O2", "-o", b.file("mpi"), b.file("mpi.c")))
	return err
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

// ours is this project's engine, with flags for its ranks.
func ours(name, sizes string, flags ...string) peer {
	return peer{name: name, sizes: sizes, start: func(ctx context.Context, b *bench, world int) (*ranks, error) {
		r := &ranks{}
		for rank := range world {
			args := append([]string{b.file("rank"), "-rank", strconv.Itoa(rank), "-world", strconv.Itoa(world), "-sizes", b.sizesOf(sizes), "-budget", b.budget.String()}, flags...)
			d, err := r.add(ctx, nil, args...)
			if err != nil {
				return r, err
			}
			addr, err := d.Expect(ctx, "addr")
			if err != nil {
				return r, err
			}
			r.addrs = append(r.addrs, addr)
		}
		var err error
		for _, d := range r.all {
			err = errors.Join(err, d.Tell(strings.Join(r.addrs, " ")))
		}
		return r, err
	}}
}

// torch is a backend of torch.distributed.
func torch(name, backend, sizes string) peer {
	return peer{name: name, sizes: sizes, start: func(ctx context.Context, b *bench, world int) (*ranks, error) {
		r := &ranks{}
		address, err := cluster.FreeAddress()
		_, port, _ := net.SplitHostPort(address)
		for rank := range world {
			if err == nil {
				_, err = r.add(ctx, []string{"GLOO_SOCKET_IFNAME=lo", "PYTHONPATH=" + b.packages}, b.python, b.file("torch_rank.py"), backend,
					strconv.Itoa(rank), strconv.Itoa(world), port, b.sizesOf(sizes), fmt.Sprint(b.budget.Seconds()))
			}
		}
		return r, err
	}}
}

// mpi is Open MPI over one of its transports.
func mpi(name, transport string) peer {
	return peer{name: name, start: func(ctx context.Context, b *bench, world int) (*ranks, error) {
		r := &ranks{}
		_, err := r.add(ctx, nil, "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(world),
			"--mca", "pml", "ob1", "--mca", "btl", "self,"+transport, "--mca", "btl_vader_single_copy_mechanism", "cma",
			"--mca", "btl_tcp_if_include", "lo", b.file("mpi"), b.sizesOf(""), fmt.Sprint(b.budget.Seconds()))
		return r, err
	}}
}

func (r *ranks) add(ctx context.Context, env []string, args ...string) (*cluster.Dialog, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = append(os.Environ(), env...), &r.stderr, time.Second
	d, err := cluster.Talk(cmd)
	if err == nil {
		r.all = append(r.all, d)
	}
	return d, err
}

// measure runs a peer once.
func (b *bench) measure(ctx context.Context, p peer, world int) (lines []line, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := p.start(ctx, b, world)
	for err == nil {
		text, over := r.all[0].Line()
		if over != nil {
			break
		}
		var l line
		if _, err := fmt.Sscan(text, &l.bytes, &l.min, &l.median, &l.max); err == nil {
			lines = append(lines, l)
		}
	}
	if err != nil {
		cancel()
	}
	for _, d := range r.all {
		err = cmp.Or(err, d.Wait())
	}
	if err != nil {
		return nil, fmt.Errorf("%s with %d ranks: %w\n%s", p.name, world, err, r.stderr.String())
	}
	return lines, nil
}
