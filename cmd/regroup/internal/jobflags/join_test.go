package jobflags

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/spec"
)

func joinSpec(t *testing.T, line string) (spec.Job, error) {
	t.Helper()
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	j := AddJoin(fs)
	if err := fs.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return j.Spec(fs.Args())
}

// TestTorchrunsFlags covers torchrun's flags in both spellings.
func TestTorchrunsFlags(t *testing.T) {
	s, err := joinSpec(t, "--join-job mnist --nnodes 2:4 --nproc_per_node 2 --max_restarts 3 "+
		"--rdzv_conf last_call_timeout=5,join_timeout=60,close_timeout=1.5,keep_alive_interval=2,keep_alive_max_attempt=4,heartbeat_timeout=3s,join_timeout=90 "+
		"--recovery in-process -- python train.py --lr 1")
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Rendezvous{
		Nodes: spec.NodeRange{Min: 2, Max: 4}, WorkersPerNode: 2, JoinTimeout: spec.Duration(90 * time.Second),
		LastCallTimeout: spec.Duration(5 * time.Second), CloseTimeout: spec.Duration(1500 * time.Millisecond),
		KeepAliveInterval: spec.Duration(2 * time.Second), KeepAliveMaxAttempt: 4, HeartbeatTimeout: spec.Duration(3 * time.Second),
	}
	if *s.Rendezvous != want {
		t.Errorf("got %+v, want %+v", *s.Rendezvous, want)
	}
	if s.Name != "mnist" || *s.Failures.Max != 3 || s.Workers != (spec.Workers{Min: 4, Max: 8}) || strings.Join(s.Command, " ") != "python train.py --lr 1" {
		t.Errorf("got %+v", s)
	}
}

func TestJoinFlagsFindEverythingAtOnce(t *testing.T) {
	_, err := joinSpec(t, "--join-job My_Job --nnodes x --nproc-per-node 0 --rdzv-conf is_host=1,timeout=9,join_timeout=-1,last_call_timeot=3,close_timeout,keep_alive_max_attempt=0 --env A -- x")
	if err == nil {
		t.Fatal("nothing was found")
	}
	for _, want := range []string{
		"--join-job: name \"My_Job\"", "--nnodes: \"x\" is no number of nodes", "--rdzv-conf is_host: has no meaning here", "--rdzv-conf timeout: has no meaning here: torchrun's c10d ignores it too",
		"--rdzv-conf join_timeout: is \"-1\"", "--rdzv-conf last_call_timeot: is not known", "did you mean", "--rdzv-conf close_timeout: has no value",
		"--rdzv-conf keep_alive_max_attempt: is \"0\"", "--env: \"A\" has no value",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not found: %s\nin %s", want, err)
		}
	}
}
