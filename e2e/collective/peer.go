package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/internal/freeport"
)

// peer is an implementation of allreduce.
type peer struct {
	name  string
	start func(ctx context.Context, b *bench, world int) (*ranks, error)
	sizes string // empty = all
}

// ranks are the processes of one run; out is the output of rank 0.
type ranks struct {
	all    []*exec.Cmd
	out    io.Reader
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
func (b *bench) prepare() error {
	if err := os.WriteFile(b.file("torch_rank.py"), torchSource, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(b.file("mpi.c"), mpiSource, 0o600); err != nil {
		return err
	}
	for _, build := range [][]string{
		{"go", "build", "-o", b.file("rank"), "./e2e/collective/rank"},
		{"mpicc", "-O2", "-o", b.file("mpi"), b.file("mpi.c")},
	} {
		if out, err := exec.Command(build[0], build[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(build, " "), err, out)
		}
	}
	return nil
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

// ours is this project's engine, with flags for its ranks.
func ours(name, sizes string, flags ...string) peer {
	return peer{name: name, sizes: sizes, start: func(ctx context.Context, b *bench, world int) (*ranks, error) {
		r := &ranks{}
		var inputs []io.WriteCloser
		var addrs []string
		for rank := range world {
			args := append([]string{"-rank", strconv.Itoa(rank), "-world", strconv.Itoa(world), "-sizes", b.sizesOf(sizes), "-budget", b.budget.String()}, flags...)
			cmd := r.add(ctx, b.file("rank"), args...)
			in, err := cmd.StdinPipe()
			if err != nil {
				return r, err
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				return r, err
			}
			if err := cmd.Start(); err != nil {
				return r, err
			}
			lines := bufio.NewReader(out)
			addr, err := lines.ReadString('\n')
			if err != nil {
				return r, err
			}
			if rank == 0 {
				r.out = lines
			}
			inputs, addrs = append(inputs, in), append(addrs, strings.TrimPrefix(strings.TrimSpace(addr), "addr "))
		}
		for _, in := range inputs {
			if _, err := fmt.Fprintln(in, strings.Join(addrs, " ")); err != nil {
				return r, err
			}
		}
		return r, nil
	}}
}

// torch is a backend of torch.distributed.
func torch(name, backend, sizes string) peer {
	return peer{name: name, sizes: sizes, start: func(ctx context.Context, b *bench, world int) (*ranks, error) {
		r, port := &ranks{}, freePort()
		for rank := range world {
			cmd := r.add(ctx, b.python, b.file("torch_rank.py"), backend, strconv.Itoa(rank), strconv.Itoa(world), port,
				b.sizesOf(sizes), fmt.Sprint(b.budget.Seconds()))
			cmd.Env = append(os.Environ(), "GLOO_SOCKET_IFNAME=lo", "PYTHONPATH="+b.packages)
			if rank == 0 {
				out, err := cmd.StdoutPipe()
				if err != nil {
					return r, err
				}
				r.out = out
			}
			if err := cmd.Start(); err != nil {
				return r, err
			}
		}
		return r, nil
	}}
}

// mpi is Open MPI over one of its transports.
func mpi(name, transport string) peer {
	return peer{name: name, start: func(ctx context.Context, b *bench, world int) (*ranks, error) {
		r := &ranks{}
		cmd := r.add(ctx, "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(world),
			"--mca", "pml", "ob1", "--mca", "btl", "self,"+transport, "--mca", "btl_vader_single_copy_mechanism", "cma",
			"--mca", "btl_tcp_if_include", "lo", b.file("mpi"), b.sizesOf(""), fmt.Sprint(b.budget.Seconds()))
		out, err := cmd.StdoutPipe()
		if err != nil {
			return r, err
		}
		r.out = out
		return r, cmd.Start()
	}}
}

func (r *ranks) add(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &r.stderr
	cmd.WaitDelay = time.Second
	r.all = append(r.all, cmd)
	return cmd
}

// measure runs a peer once.
func (b *bench) measure(ctx context.Context, p peer, world int) ([]line, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	r, err := p.start(ctx, b, world)
	var lines []line
	if err == nil {
		for s := bufio.NewScanner(r.out); s.Scan(); {
			var l line
			if _, err := fmt.Sscan(s.Text(), &l.bytes, &l.min, &l.median, &l.max); err == nil {
				lines = append(lines, l)
			}
		}
	} else {
		cancel()
	}
	for _, cmd := range r.all {
		if cmd.Process == nil {
			continue
		}
		if failed := cmd.Wait(); failed != nil && err == nil {
			err = failed
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s with %d ranks: %w\n%s", p.name, world, err, r.stderr.String())
	}
	return lines, nil
}

func freePort() string {
	all, err := freeport.Addresses(1)
	if err != nil {
		return "29500"
	}
	_, port, _ := net.SplitHostPort(all[0])
	return port
}
