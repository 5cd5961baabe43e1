package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/tcp"
)

// rankVariable tells the test binary to be one rank of a real process group.
const rankVariable = "COLLECTIVE_TEST_RANK"

// runAsRank is the program of such a process. It prints its address, reads
// everyone's, and reduces until it fails; then it prints the failure and when.
func runAsRank() bool {
	rank, err := strconv.Atoi(os.Getenv(rankVariable))
	if err != nil {
		return false
	}
	fail := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	tr, err := tcp.Listen(tcp.Options{})
	if err != nil {
		fail(err)
	}
	e := NewEndpoint(tr)
	fmt.Println("addr", e.Addr())
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		fail(err)
	}
	addrs := strings.Fields(line)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := New(ctx, Options{
		Job: "processes", Generation: 3, Token: "t", Rank: rank, World: len(addrs), Endpoint: e,
		StallAfter: time.Second,
		Peers:      func(_ context.Context, r int) (string, error) { return addrs[r], nil },
	})
	if err != nil {
		fail(err)
	}
	buf := make([]float32, 4<<20)
	for i := 0; ; i++ {
		if err := Allreduce(ctx, c, buf, Average); err != nil {
			at := time.Now().UnixNano()
			var lost *PeerLostError
			if !errors.As(err, &lost) {
				fail(err)
			}
			fmt.Println("lost", lost.Rank, at)
			_ = c.Close()
			_ = e.Close()
			return true
		}
		if i == 2 {
			fmt.Println("running")
		}
	}
}

type rankProcess struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
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

// hurt starts four processes, sends one a signal in the middle of its work, and
// returns after how long the others knew.
func hurt(t *testing.T, victim int, signal syscall.Signal) time.Duration {
	t.Helper()
	const world = 4
	ctx := soon(t)
	var ranks []*rankProcess
	var addrs []string
	var inputs []*os.File
	for rank := range world {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), rankVariable+"="+strconv.Itoa(rank))
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
		p := &rankProcess{cmd, bufio.NewScanner(out)}
		ranks, inputs = append(ranks, p), append(inputs, w)
		addrs = append(addrs, p.expect(t, "addr")[0])
	}
	for _, w := range inputs {
		fmt.Fprintln(w, strings.Join(addrs, " "))
	}
	for _, p := range ranks {
		p.expect(t, "running")
	}
	start := time.Now()
	if err := ranks[victim].cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var last time.Duration
	for rank, p := range ranks {
		if rank == victim {
			continue
		}
		said := p.expect(t, "lost")
		if said[0] != strconv.Itoa(victim) {
			t.Fatalf("rank %d says that rank %s is lost, not %d", rank, said[0], victim)
		}
		at, _ := strconv.ParseInt(said[1], 10, 64)
		after := time.Unix(0, at).Sub(start)
		t.Logf("rank %d knew after %.1f ms", rank, float64(after.Microseconds())/1000)
		last = max(last, after)
	}
	return last
}

func TestSIGKILLOfAProcessIsKnownToAllWithinASecond(t *testing.T) {
	if after := hurt(t, 2, syscall.SIGKILL); after > time.Second {
		t.Fatalf("it took %v", after)
	}
}

func TestAFrozenProcessIsKnownAfterTheStallLimit(t *testing.T) {
	// One second, two heartbeats of slack, and a loaded machine.
	if after := hurt(t, 1, syscall.SIGSTOP); after < 900*time.Millisecond || after > 3*time.Second {
		t.Fatalf("it took %v", after)
	}
}
