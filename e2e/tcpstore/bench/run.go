package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

// result is that of one run.
type result struct {
	through, p99, cpu time.Duration
	grown, memory     int64 // KiB of the server
}

// process is a program that is told to go on by lines, and tells what it did by lines.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(ctx context.Context, command ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewReader(out)}, nil
}

func (p *process) line() (string, error) {
	s, err := p.out.ReadString('\n')
	return strings.TrimSpace(s), err
}

func (p *process) expect(want string) error {
	got, err := p.line()
	if err == nil && got != want {
		err = errors.New(got)
	}
	return err
}

func (p *process) proceed() error {
	_, err := io.WriteString(p.in, "0\n") // a server of ours takes it for a port
	return err
}

// end ends the input, and waits for the process.
func (p *process) end() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}

func output(ctx context.Context, command ...string) (string, error) {
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	return string(out), err
}

// run measures one server with a number of clients.
func (b *bench) run(ctx context.Context, s server, clients int) (r result, err error) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute) // which kills what is left
	defer stop()
	srv, err := start(ctx, s.command(b)...)
	if err != nil {
		return r, err
	}
	if err := srv.proceed(); err != nil {
		return r, err
	}
	address, err := srv.line()
	if err != nil {
		return r, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return r, err
	}
	python := func(program string, args ...string) (*process, error) {
		p, err := start(ctx, append([]string{b.python, "-W", "ignore", b.folder + "/" + program, host, port}, args...)...)
		if err != nil {
			return nil, err
		}
		return p, p.expect("ready")
	}
	probe, err := python("probe.py")
	if err != nil {
		return r, err
	}
	ranks, err := python("clients.py", strconv.Itoa(clients), strconv.Itoa(b.processes))
	if err != nil {
		return r, err
	}
	before, cpu := memory(srv), cpuTime(srv)
	begin := time.Now()
	for _, p := range []*process{ranks, probe} {
		if err := p.proceed(); err != nil {
			return r, err
		}
	}
	if err := ranks.expect("done"); err != nil {
		return r, err
	}
	r.through, r.cpu = time.Since(begin), cpuTime(srv)-cpu
	r.memory = memory(srv)
	r.grown = r.memory - before
	if r.p99, err = times(probe); err != nil {
		return r, err
	}
	return r, errors.Join(ranks.end(), srv.end())
}

// times ends the probe, and returns the 99th percentile of its times.
func times(probe *process) (time.Duration, error) {
	if err := probe.in.Close(); err != nil {
		return 0, err
	}
	var us []int64
	if err := json.NewDecoder(probe.out).Decode(&us); err != nil {
		return 0, err
	}
	var d []time.Duration
	for _, t := range us {
		d = append(d, time.Duration(t)*time.Microsecond)
	}
	return report.Quantile(d, 0.99), probe.cmd.Wait()
}

// memory returns the resident memory of a process in KiB.
func memory(p *process) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(n)[0], 10, 64)
			return kib
		}
	}
	return 0
}

// cpuTime returns the time that a process has computed, in its own code and in the kernel's.
func cpuTime(p *process) time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // of a clock of 100 Hz
}
