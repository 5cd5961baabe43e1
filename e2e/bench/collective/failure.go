package collective

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
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

// expect waits for a line with a word, and returns the numbers after it.
func expect(ctx context.Context, d *cluster.Dialog, word string) (first, second int64, err error) {
	rest, err := d.Expect(ctx, word)
	if err == nil {
		_, err = fmt.Sscan(rest, &first, &second)
	}
	return first, second, err
}

// failures measures the time until all survivors detect the loss, and until they have the first
// correct result without the lost rank.
func (b *bench) failures(ctx context.Context, trials int) (string, error) {
	const about = "One of four ranks is hurt in the middle of an allreduce. The time to the notice is until\n" +
		"the last of the others has its error, that to the first result until the last of them has the correct sum of a\n" +
		"new generation without the lost rank, which a coordinator announces when all have said that they know. Milliseconds.\n\n"
	t := &report.Table{}
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
		t.Times(f.what+": all know", notices, f.goals[0])
		t.Times(f.what+": first result", results, f.goals[1])
	}
	return about + t.String(), nil
}

func (b *bench) hurt(ctx context.Context, f fault) (notice, result time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	group, err := ours("", strconv.Itoa(f.bytes), "-survive", "-over", f.over, "-stall", stallLimit.String()).start(ctx, b, survivors+1)
	defer func() {
		cancel() // kills them
		for _, d := range group.all {
			_ = d.Wait()
		}
	}()
	for _, d := range group.all {
		if err == nil {
			_, _, err = expect(ctx, d, "good")
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, group.stderr.String())
	}
	victim := rand.IntN(len(group.all))
	time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond) // a random moment of an operation
	began := time.Now().UnixNano()
	if err := group.all[victim].Process.Signal(f.signal); err != nil {
		return 0, 0, err
	}
	var rest []*cluster.Dialog
	var addrs []string
	last := int64(0)
	for i, d := range group.all {
		if i == victim {
			continue
		}
		lost, at, err := expect(ctx, d, "lost")
		if err != nil {
			return 0, 0, err
		}
		if lost != int64(victim) {
			return 0, 0, fmt.Errorf("rank %d says that rank %d is lost, not %d", i, lost, victim)
		}
		last = max(last, at)
		rest, addrs = append(rest, d), append(addrs, group.addrs[i])
	}
	notice = time.Duration(last - began)
	for i, d := range rest {
		if err := d.Tell(2, i, strings.Join(addrs, " ")); err != nil {
			return 0, 0, err
		}
	}
	for _, d := range rest {
		_, at, err := expect(ctx, d, "good")
		if err != nil {
			return 0, 0, err
		}
		last = max(last, at)
	}
	return notice, time.Duration(last - began), nil
}
