package collective

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

type rankProcess struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	in    *os.File
}

func startRank(ctx context.Context, t *testing.T, p part) *rankProcess {
	t.Helper()
	is, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), rankVariable+"="+string(is))
	cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = w.Close() })
	return &rankProcess{cmd, bufio.NewScanner(out), w}
}

// expect reads the next line and returns what follows word.
func (p *rankProcess) expect(t *testing.T, word string) []string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("process ended, %q expected", word)
	}
	fields := strings.Fields(p.lines.Text())
	if len(fields) == 0 || fields[0] != word {
		t.Fatalf("%q, expected %q", p.lines.Text(), word)
	}
	return fields[1:]
}

func (p *rankProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// hurt starts processes, sends one of them a signal in the middle of its work, and returns how long
// the others took to notice. Their memory has changed owners by then, and must not change though
// the victim goes on, if it can.
func hurt(t *testing.T, p part, victim int, signal syscall.Signal) (last time.Duration) {
	t.Helper()
	ctx := soon(t)
	var ranks []*rankProcess
	var addrs []string
	for rank := range p.World {
		mine := p
		mine.Rank = rank
		if mine.Memory == "mixed" {
			mine.Memory = []string{"mapped", "arena"}[rank%2]
		}
		r := startRank(ctx, t, mine)
		ranks, addrs = append(ranks, r), append(addrs, r.expect(t, "addr")[0])
	}
	for _, r := range ranks {
		fmt.Fprintln(r.in, strings.Join(addrs, " "))
	}
	for _, r := range ranks {
		how := strings.Join(r.expect(t, "running"), " ")
		if strings.Contains(how, "through shared memory") != p.Shared {
			t.Fatal(how)
		}
	}
	start := time.Now()
	ranks[victim].signal(t, signal)
	for rank, r := range ranks {
		if rank == victim {
			continue
		}
		said := r.expect(t, "lost")
		if said[0] != strconv.Itoa(victim) {
			t.Fatalf("rank %d says that rank %s is lost, not %d", rank, said[0], victim)
		}
		at, _ := strconv.ParseInt(said[1], 10, 64)
		last = max(last, time.Unix(0, at).Sub(start))
	}
	if signal == syscall.SIGSTOP {
		ranks[victim].signal(t, syscall.SIGCONT)
		ranks[victim].expect(t, "lost")
	}
	for rank, r := range ranks {
		if rank != victim || signal == syscall.SIGSTOP {
			fmt.Fprintln(r.in, "check")
			r.expect(t, "clean")
		}
	}
	return last
}

var parts = map[string]part{
	"tcp/small":        {Bytes: 4000, Memory: "mapped"},
	"tcp/large":        {Bytes: 16 << 20, Memory: "mapped"},
	"shm/small":        {Bytes: 4000, Memory: "mapped", Shared: true},
	"shm/large":        {Bytes: 16 << 20, Memory: "mapped", Shared: true},
	"shm/large, mixed": {Bytes: 16 << 20, Memory: "mixed", Shared: true},
}

func TestSIGKILLOfAProcessIsKnownToAllWithinASecond(t *testing.T) {
	for name, p := range parts {
		t.Run(name, func(t *testing.T) {
			p.World = 4
			if after := hurt(t, p, 2, syscall.SIGKILL); after > time.Second {
				t.Fatalf("it took %v", after)
			}
		})
	}
}

func TestAFrozenProcessIsKnownAfterTheStallLimit(t *testing.T) {
	for name, p := range parts {
		t.Run(name, func(t *testing.T) {
			p.World = 3
			// One second, and a loaded machine: it may have been silent for some time before, and
			// the others may look later. A death would be known at once.
			if after := hurt(t, p, 1, syscall.SIGSTOP); after < 500*time.Millisecond || after > 20*time.Second {
				t.Fatalf("it took %v", after)
			}
		})
	}
}
