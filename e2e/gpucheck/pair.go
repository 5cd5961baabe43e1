package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/e2e/cluster"
)

// arrangement is a placement of two ranks.
type arrangement struct {
	name    string
	devices [2]int
	env     [2][]string
	must    bool
}

// arrangements are those that are possible here: two GPUs, or else one for both, which NCCL permits
// from 2.30 on, as an experiment. Before that it distinguishes GPUs of two hosts even if they have
// the same address, so the ranks claim to be on two.
func arrangements(l *nccl.Library, device int) ([]arrangement, error) {
	list, err := l.Devices()
	if err != nil {
		return nil, err
	}
	if len(list) > 1 {
		other := 0
		if device == 0 {
			other = 1
		}
		return []arrangement{{name: "two GPUs", devices: [2]int{device, other}, must: true}}, nil
	}
	both := [2]int{device, device}
	hosts := arrangement{name: "one GPU as of two hosts", devices: both}
	for i := range hosts.env {
		hosts.env[i] = []string{fmt.Sprintf("NCCL_HOSTID=gpucheck-%d", i), "NCCL_SOCKET_IFNAME=lo"}
	}
	if l.Version() < 23000 {
		return []arrangement{hosts}, nil
	}
	many := []string{"NCCL_MULTI_RANK_GPU_ENABLE=1", "NCCL_MAX_CTAS=4"} // few blocks: both must fit on the GPU
	return []arrangement{{name: "one GPU for two ranks", devices: both, env: [2][]string{many, many}}, hosts}, nil
}

// pairs runs the checks with two ranks, each a process, the second of which is killed.
func pairs(t *table, l *nccl.Library, s settings) {
	list, err := arrangements(l, s.device)
	if err != nil {
		t.must("two ranks", "", err)
		return
	}
	for _, a := range list {
		for _, what := range []string{toTheEnd, killAbort, killReform} {
			title := a.name + ": " + map[string]string{
				toTheEnd: "sum", killAbort: "kill, new id", killReform: "kill, reform",
			}[what]
			detail, err := a.play(s, what)
			if a.must {
				t.must(title, detail, err)
			} else {
				t.may(title, detail, err)
			}
			if err != nil && what == toTheEnd {
				break // the others include it
			}
		}
	}
}

// child is one of the two processes.
type child struct {
	*cluster.Dialog
	errors *bytes.Buffer
}

func (a arrangement) start(ctx context.Context, s settings, rank int, what, id string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	size := min(s.bytes, 4<<20)
	if isEngine(what) {
		size = min(s.bytes, 64<<20)
	}
	cmd := exec.CommandContext(ctx, self, rankCommand, "-rank", fmt.Sprint(rank), "-device", fmt.Sprint(a.devices[rank]),
		"-do", what, "-id", id, "-search", s.search, "-limit", s.limit.String(), "-notice", s.notice.String(),
		"-bytes", fmt.Sprint(size))
	c := &child{errors: &bytes.Buffer{}}
	cmd.Env, cmd.Stderr = append(os.Environ(), a.env[rank]...), c.errors
	c.Dialog, err = cluster.Talk(cmd)
	return c, err
}

// expect reads on until a line begins with word, and returns what follows. NCCL writes there too if
// configured to.
func (c *child) expect(ctx context.Context, word string) (string, error) {
	rest, err := c.Expect(ctx, word)
	if !errors.Is(err, io.EOF) {
		return rest, err
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("no %q in time", word)
	}
	_ = c.Wait() // what it said is complete then
	printed := c.errors.String()
	return "", fmt.Errorf("the process ended before %q: %s", word, printed[max(0, len(printed)-500):])
}

// play runs both ranks; no process remains.
func (a arrangement) play(s settings, what string) (detail string, err error) {
	ctx, cancel := s.within()
	var ranks [2]*child
	defer func() {
		cancel() // kills what still runs
		for _, c := range ranks {
			if c != nil {
				_ = c.Wait()
			}
		}
	}()
	var ids [2]string
	for rank := range ranks {
		if ranks[rank], err = a.start(ctx, s, rank, what, ids[0]); err != nil {
			return "", err
		}
		if rank == 0 || isEngine(what) {
			if ids[rank], err = ranks[rank].expect(ctx, "id"); err != nil {
				return "", err
			}
		}
	}
	if isEngine(what) {
		for _, c := range ranks {
			_ = c.Tell(ids[0], ids[1]) // a rank without input ends with a reason
		}
	}
	for _, c := range ranks {
		if detail, err = c.expect(ctx, "summed"); err != nil {
			return "", err
		}
	}
	if what == toTheEnd || what == engineSum {
		for _, c := range ranks {
			if err := c.Wait(); err != nil {
				return "", fmt.Errorf("after the sums: %w", err)
			}
		}
		ranks = [2]*child{}
		return detail, nil
	}
	began := time.Now()
	if err := ranks[1].Process.Kill(); err != nil {
		return "", err
	}
	_ = ranks[1].Wait()
	ranks[1] = nil
	seen, err := ranks[0].expect(ctx, "seen")
	if err != nil {
		return "", err
	}
	seen += ", " + took(began) + " after the kill"
	recovered, err := ranks[0].expect(ctx, "recovered")
	if err != nil {
		return "", fmt.Errorf("%w (%s)", err, seen)
	}
	return fmt.Sprintf("%s; recovered in %s", seen, recovered), nil
}
