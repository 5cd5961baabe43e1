// Package store measures the store that an agent serves beside PyTorch's own server: clients of
// PyTorch do what the ranks of a job do at their start.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
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
	"github.com/regroup-io/regroup/e2e/report"
)

type bench struct {
	*report.Report
	python, folder  string
	runs, processes int
	text            strings.Builder
}

// result is that of one run, as the columns of the table have it: milliseconds, and MiB of the
// server.
type result struct{ through, p99, cpu, grown, memory float64 }

// Suite measures both servers with each number of clients.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	b := &bench{}
	f.StringVar(&b.python, "python", "python3", "with torch 2.4 or later")
	f.StringVar(&b.folder, "folder", "e2e/bench/store", "folder with the programs in Python")
	clients := f.String("clients", "64,256,1024,4096", "numbers of clients")
	f.IntVar(&b.runs, "runs", 3, "of each server with each number of clients")
	f.IntVar(&b.processes, "processes", 8, "that the clients are in")
	return func(ctx context.Context, r *report.Report) error {
		b.Report = r
		version, err := cluster.Output(exec.CommandContext(ctx, b.python, "-c", "import torch; print(torch.__version__)"))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b.text, `The store that an agent serves, beside PyTorch's own (libuv), each in a process of its own. Clients are those of PyTorch %s, in
%d processes with a thread for each client, on the same machine. Each connects, sets its key, adds to a counter, gets the keys of three others, and waits for a key that the last one sets.
Medians of %d runs, the servers in turn.

| clients | server | until all are through | 99%% of set and get | server: CPU time | memory for the clients | memory in all |
|---:|---|---:|---:|---:|---:|---:|
`, version, b.processes, b.runs)
		for field := range strings.SplitSeq(*clients, ",") {
			n, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			if err := b.compare(ctx, n); err != nil {
				return err
			}
		}
		b.text.WriteString(`
99% of set and get: one more client, in a process of its own, sets a key and gets it again every 2 ms meanwhile, which are three round trips; a short run has few samples, so it is
nearly the longest. Clients and server share the cores, and PyTorch's server takes a sixth of them at most, so no server could halve the time here. CPU time is counted in steps of 10 ms. Memory: of
the process when all clients are connected, and what came to it since there was none. The clients are without DNS, in which they look up names for each address.
`)
		return r.Section("TCPStore", b.text.String())
	}
}

func (b *bench) compare(ctx context.Context, clients int) error {
	servers := []struct {
		name    string
		command []string
	}{
		{"PyTorch", []string{b.python, "-W", "ignore", filepath.Join(b.folder, "server.py")}},
		{"Regroup", []string{filepath.Join(b.Bin, "tcpstore"), "-host", "127.0.0.1"}},
	}
	results := make([][]result, len(servers))
	for range b.runs {
		for i, s := range servers {
			r, err := b.run(ctx, clients, s.command)
			if err != nil {
				return fmt.Errorf("%s, %d clients: %w", s.name, clients, err)
			}
			b.Say("%d clients, %s: %+v", clients, s.name, r)
			results[i] = append(results[i], r)
		}
	}
	var medians [2]result
	for i, s := range servers {
		m := &medians[i]
		for _, of := range []func(*result) *float64{
			func(r *result) *float64 { return &r.through }, func(r *result) *float64 { return &r.p99 }, func(r *result) *float64 { return &r.cpu },
			func(r *result) *float64 { return &r.grown }, func(r *result) *float64 { return &r.memory },
		} {
			slices.SortFunc(results[i], func(a, b result) int { return cmp.Compare(*of(&a), *of(&b)) })
			*of(m) = *of(&results[i][b.runs/2])
		}
		fmt.Fprintf(&b.text, "| %d | %s | %.0f ms | %.1f ms | %.0f ms | %.1f MiB | %.1f MiB |\n", clients, s.name, m.through, m.p99, m.cpu, m.grown, m.memory)
	}
	theirs, ours := medians[0], medians[1]
	fmt.Fprintf(&b.text, "| | ratio | %.2f | %.2f | %.2f | %.2f | %.2f |\n", ours.through/theirs.through, ours.p99/theirs.p99, ours.cpu/max(theirs.cpu, 1),
		ours.grown/theirs.grown, ours.memory/theirs.memory)
	return nil
}

// run measures one server with a number of clients.
func (b *bench) run(ctx context.Context, clients int, command []string) (r result, err error) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop() // which kills what is left
	start := func(command ...string) (*cluster.Dialog, error) {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Stderr = os.Stderr
		return cluster.Talk(cmd)
	}
	server, err := start(command...)
	if err == nil {
		err = server.Tell(0) // of ours: any port
	}
	if err != nil {
		return r, err
	}
	address, err := server.Line()
	if err != nil {
		return r, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return r, err
	}
	var both [2]*cluster.Dialog
	for i, args := range [][]string{{"clients.py", host, port, strconv.Itoa(clients), strconv.Itoa(b.processes)}, {"probe.py", host, port}} {
		if both[i], err = start(append([]string{b.python, "-W", "ignore", filepath.Join(b.folder, args[0])}, args[1:]...)...); err == nil {
			_, err = both[i].Expect(ctx, "ready")
		}
		if err != nil {
			return r, err
		}
	}
	ranks, probe := both[0], both[1]
	before, err := cluster.Used(server.Process.Pid)
	began := time.Now()
	if err = errors.Join(err, ranks.Tell(), probe.Tell()); err != nil {
		return r, err
	}
	if _, err := ranks.Expect(ctx, "done"); err != nil {
		return r, err
	}
	r.through = report.MS(time.Since(began))
	after, err := cluster.Used(server.Process.Pid)
	r.cpu, r.grown, r.memory = report.MS(after.CPU-before.CPU), after.Now-before.Now, after.Now
	if err = errors.Join(err, probe.In.Close()); err != nil {
		return r, err
	}
	line, err := probe.Line()
	if err != nil {
		return r, err
	}
	var us []int64
	if err := json.Unmarshal([]byte(line), &us); err != nil {
		return r, err
	}
	var times []time.Duration
	for _, t := range us {
		times = append(times, time.Duration(t)*time.Microsecond)
	}
	r.p99 = report.MS(report.Quantile(times, 0.99))
	return r, errors.Join(probe.Wait(), ranks.End(), server.End())
}
