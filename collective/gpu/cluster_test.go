package gpu

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// cluster is a set of member processes on nodes.
type cluster struct {
	env        []string
	processes  map[string]*nccltest.Process // by name: a letter for the node, and a digit for the GPU
	addresses  map[string]string
	generation int
	ranks      []string // names, in the order of the ranks
}

func newCluster(t *testing.T, version int, env ...string) *cluster {
	path := fake.Build(t, nccltest.Variant{Version: version})
	return &cluster{
		env:       append(env, "REGROUP_FAKE_DEVICES=4", "REGROUP_NCCL_LIBRARY="+path, "REGROUP_CUDA_LIBRARY="+fake.Driver),
		processes: map[string]*nccltest.Process{}, addresses: map[string]string{},
	}
}

// form makes the members of a generation form it, named like "a0 a1 b0 b1", and starts those that
// do not run yet. It returns the description of each.
func (c *cluster) form(t *testing.T, members string) map[string]string {
	t.Helper()
	c.generation++
	c.ranks = strings.Fields(members)
	size, local := map[byte]int{}, map[string]int{}
	for _, m := range c.ranks {
		if c.processes[m] == nil {
			c.processes[m] = fake.Start(t, "member", append(c.env, "NCCL_TEST_NAME="+m, "NCCL_TEST_DEVICE="+m[1:])...)
		}
		local[m] = size[m[0]]
		size[m[0]]++
	}
	var addresses []string
	for _, m := range c.ranks {
		if c.addresses[m] == "" {
			c.addresses[m] = c.processes[m].Expect(t, "address")
		}
		addresses = append(addresses, c.addresses[m])
	}
	for rank, m := range c.ranks {
		fmt.Fprintln(c.processes[m].Input, "form", c.generation, rank, local[m], size[m[0]], strings.Join(addresses, " "))
	}
	how := map[string]string{}
	for _, m := range c.ranks {
		how[m] = c.processes[m].Expect(t, "formed")
	}
	return how
}

// do runs a command on all members, and waits for their answers.
func (c *cluster) do(t *testing.T, command, answer string) {
	t.Helper()
	for _, m := range c.ranks {
		fmt.Fprintln(c.processes[m].Input, command)
	}
	for i, m := range c.ranks {
		if !c.processes[m].Lines.Scan() || c.processes[m].Lines.Text() != answer {
			t.Errorf("%s, %s: %q", m, command, c.processes[m].Lines.Text())
		}
		if t.Failed() && i == len(c.ranks)-1 {
			t.FailNow() // when all have reported their errors
		}
	}
}

// lose stops a member in a phase of a reduction, sends it a signal, SIGKILL or SIGSTOP, and checks
// that all others name it.
func (c *cluster) lose(t *testing.T, victim, phase string, by syscall.Signal) {
	t.Helper()
	for _, m := range c.ranks {
		if m == victim {
			fmt.Fprintln(c.processes[m].Input, "stop", phase)
		} else {
			fmt.Fprintln(c.processes[m].Input, "fail")
		}
	}
	p := c.processes[victim]
	p.Expect(t, "stopped")
	began := time.Now()
	ok(t, p.Cmd.Process.Signal(by))
	if by == syscall.SIGKILL {
		_ = p.Cmd.Wait()
	}
	delete(c.processes, victim)
	delete(c.addresses, victim)
	var last time.Duration
	var rest []string
	for rank, m := range c.ranks {
		if m == victim {
			continue
		}
		rest = append(rest, m)
		said := strings.Fields(c.processes[m].Expect(t, "lost"))
		if c.ranks[nccltest.Atoi(said[0])] != victim {
			t.Fatalf("rank %d says that rank %s is lost, not %s of %v", rank, said[0], victim, c.ranks)
		}
		at, err := strconv.ParseInt(said[1], 10, 64)
		ok(t, err)
		last = max(last, time.Unix(0, at).Sub(began))
	}
	t.Logf("%s %v in %s: all others knew after %.1f ms", victim, by, phase, float64(last.Microseconds())/1000)
	c.ranks = rest
}

// end ends all members cleanly.
func (c *cluster) end(t *testing.T) {
	t.Helper()
	c.do(t, "end", "ended")
	for _, p := range c.processes {
		ok(t, p.Cmd.Wait())
	}
}

func TestEveryOperationOnEveryLayoutOfProcesses(t *testing.T) {
	for _, members := range []string{"a0 a1 b0 b1", "a0 a1 a2 b0", "a0 a1 a2 a3"} {
		t.Run(members, func(t *testing.T) {
			c := newCluster(t, 23007)
			t.Log(c.form(t, members)["a0"])
			c.do(t, "check all", "right")
			c.end(t)
		})
	}
}

func TestAKillInEveryPhaseIsNamedAndTheRestGoOn(t *testing.T) {
	for _, test := range []struct {
		version int
		members string
		env     []string
		kills   [][2]string
	}{
		{23007, "a0 a1 b0 b1", nil, [][2]string{{"a1", "gather"}, {"b0", "down"}, {"a0", "network"}, {"b1", "up"}, {"a1", "spread"}}},
		{21403, "a0 a1 a2 b0", nil, [][2]string{{"a1", "gather"}, {"b0", "network"}, {"a0", "down"}}},
		{22703, "a0 a1 a2 a3", nil, [][2]string{{"a2", "gather"}}},
		{23007, "a0 a1 a2 b0", []string{"REGROUP_FAKE_NOTICE_DEATH=1"}, [][2]string{{"a2", "gather"}}},
	} {
		t.Run(fmt.Sprint(nccl.Version(test.version), " ", test.members), func(t *testing.T) {
			c := newCluster(t, test.version, test.env...)
			c.form(t, test.members)
			for _, k := range test.kills {
				c.lose(t, k[0], k[1], syscall.SIGKILL)
				how := c.form(t, strings.Join(c.ranks, " "))
				t.Log(how)
				c.do(t, "check brief", "right")
				c.form(t, test.members) // with a new member in its place
				c.do(t, "check brief", "right")
			}
			c.end(t)
		})
	}
}

func TestAFrozenProcessIsNamedAlsoWhereOnlyNCCLWaitsForIt(t *testing.T) {
	c := newCluster(t, 23007, "NCCL_TEST_STALL=2000")
	c.form(t, "a0 a1 a2")
	c.lose(t, "a1", "gather", syscall.SIGSTOP)
	c.form(t, strings.Join(c.ranks, " "))
	c.do(t, "check brief", "right")
	c.end(t)
}
