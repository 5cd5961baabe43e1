package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/report"
)

const (
	survivors  = 3 // of four ranks
	stallLimit = 500 * time.Millisecond
)

// fault is a way to lose a rank in the middle of its work.
type fault struct {
	what   string
	over   string
	bytes  int
	signal syscall.Signal
	trials int
	goals  [2]string // for the notice, and for the first result
}

func faults(trials int) []fault {
	const stopped = "median at most 50 ms over the limit (floor 200)"
	return []fault{
		{"SIGKILL during 64 MiB, TCP", "tcp", 64 << 20, syscall.SIGKILL, trials, [2]string{"p99 at most 20 ms", "none"}},
		{"SIGKILL during 64 MiB, same host", "shm", 64 << 20, syscall.SIGKILL, trials, [2]string{"p99 at most 20 ms", "none"}},
		{"SIGKILL during 4 MiB, TCP", "tcp", 4 << 20, syscall.SIGKILL, trials, [2]string{"p99 at most 20 ms", "median at most 30 ms (floor 100)"}},
		{"SIGKILL during 4 MiB, same host", "shm", 4 << 20, syscall.SIGKILL, trials, [2]string{"p99 at most 20 ms", "median at most 30 ms (floor 100)"}},
		{"SIGSTOP during 4 MiB, TCP, limit of 500 ms", "tcp", 4 << 20, syscall.SIGSTOP, trials / 5, [2]string{stopped, "none"}},
		{"SIGSTOP during 4 MiB, same host, limit of 500 ms", "shm", 4 << 20, syscall.SIGSTOP, trials / 5, [2]string{stopped, "none"}},
	}
}

// survivor is a rank with its input and output.
type survivor struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Scanner
	addr string
}

// expect reads the next line and returns the numbers after its first word.
func (s *survivor) expect(word string) (first, second int64, err error) {
	if !s.out.Scan() {
		return 0, 0, fmt.Errorf("a rank ended, %q expected", word)
	}
	fields := strings.Fields(s.out.Text())
	if len(fields) != 3 || fields[0] != word {
		return 0, 0, fmt.Errorf("%q, %q expected", s.out.Text(), word)
	}
	first, err = strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	second, err = strconv.ParseInt(fields[2], 10, 64)
	return first, second, err
}

// failures measures the time until all survivors detect the loss, and until they have the first
// correct result without the lost rank.
func (b *bench) failures(ctx context.Context, trials int) (string, error) {
	var t strings.Builder
	fmt.Fprintf(&t, "Written by `make bench SUITE=collective`: one of four ranks is hurt in the middle of an allreduce. The time to the notice is until\n"+
		"the last of the others has its error, that to the first result until the last of them has the correct sum of a\n"+
		"new generation without the lost rank, which a coordinator announces when all have said that they know.\n\nMeasured on %s. Milliseconds.\n\n"+
		"| what | trials | min | median | p99 | max | goal |\n|---|---|---|---|---|---|---|\n", report.Machine())
	for _, f := range faults(trials) {
		if !strings.Contains(f.what, b.faults) {
			continue
		}
		var notices, results []time.Duration
		for range f.trials {
			notice, result, err := b.hurt(ctx, f)
			if err != nil {
				return "", fmt.Errorf("%s: %w", f.what, err)
			}
			notices, results = append(notices, notice), append(results, result)
		}
		for i, all := range [][]time.Duration{notices, results} {
			fmt.Fprintf(&t, "| %s: %s | %d |%s %s |\n", f.what, [2]string{"all know", "first result"}[i], f.trials, milliseconds(all), f.goals[i])
		}
	}
	return t.String(), nil
}

func milliseconds(all []time.Duration) string {
	var t strings.Builder
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		fmt.Fprintf(&t, " %.1f |", float64(report.Quantile(all, q).Microseconds())/1000)
	}
	return t.String()
}

func (b *bench) hurt(ctx context.Context, f fault) (notice, result time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	all, err := b.group(ctx, f)
	defer func() {
		for _, s := range all {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	}()
	if err != nil {
		return 0, 0, err
	}
	victim := rand.IntN(len(all))
	time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond) // a random moment of an operation
	began := time.Now().UnixNano()
	if err := all[victim].cmd.Process.Signal(f.signal); err != nil {
		return 0, 0, err
	}
	var rest []*survivor
	var addrs []string
	last := int64(0)
	for i, s := range all {
		if i == victim {
			continue
		}
		lost, at, err := s.expect("lost")
		if err != nil {
			return 0, 0, err
		}
		if lost != int64(victim) {
			return 0, 0, fmt.Errorf("rank %d says that rank %d is lost, not %d", i, lost, victim)
		}
		last = max(last, at)
		rest, addrs = append(rest, s), append(addrs, s.addr)
	}
	notice = time.Duration(last - began)
	for i, s := range rest {
		if _, err := fmt.Fprintln(s.in, 2, i, strings.Join(addrs, " ")); err != nil {
			return 0, 0, err
		}
	}
	for _, s := range rest {
		_, at, err := s.expect("good")
		if err != nil {
			return 0, 0, err
		}
		last = max(last, at)
	}
	return notice, time.Duration(last - began), nil
}

// group starts four ranks and returns when all have a result.
func (b *bench) group(ctx context.Context, f fault) (all []*survivor, err error) {
	for rank := range survivors + 1 {
		cmd := exec.CommandContext(ctx, b.file("rank"), "-survive", "-rank", strconv.Itoa(rank), "-world", strconv.Itoa(survivors+1),
			"-sizes", strconv.Itoa(f.bytes), "-over", f.over, "-stall", stallLimit.String())
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return all, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return all, err
		}
		if err := cmd.Start(); err != nil {
			return all, err
		}
		s := &survivor{cmd: cmd, in: in, out: bufio.NewScanner(out)}
		all = append(all, s)
		if !s.out.Scan() {
			return all, fmt.Errorf("rank %d has not said its address", rank)
		}
		s.addr = strings.TrimPrefix(s.out.Text(), "addr ")
	}
	var addrs []string
	for _, s := range all {
		addrs = append(addrs, s.addr)
	}
	for _, s := range all {
		if _, err := fmt.Fprintln(s.in, strings.Join(addrs, " ")); err != nil {
			return all, err
		}
	}
	for _, s := range all {
		if _, _, err := s.expect("good"); err != nil {
			return all, err
		}
	}
	return all, nil
}
