package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/agent/tcpstore"
	"github.com/regroup-io/regroup/e2e/pytorch"
)

// store returns a store with its address, and the function that runs a script with PyTorch.
func store(t *testing.T) (*tcpstore.Server, string, func(script string, env []string, args ...string) string) {
	t.Helper()
	python := pytorch.Python(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := tcpstore.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}.Serve(l)
	t.Cleanup(func() { s.Close() })
	return s, l.Addr().String(), func(script string, env []string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), python, append([]string{"-W", "ignore", filepath.Join("testdata", script)}, args...)...)
		cmd.Env = append(os.Environ(), env...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s %s: %v\n%s%s", script, args, err, out, errs.String())
		}
		return string(out)
	}
}

// TestOperations calls every operation that the PyTorch has.
func TestOperations(t *testing.T) {
	s, address, run := store(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(run("operations.py", nil, host, port))
	if got, ok := s.Get("later"); !ok || string(got) != "2" {
		t.Errorf("the server's process reads %q", got)
	}
}

// TestInitProcessGroup: processes form groups through the store as an agent's workers do, twice at
// once in two stores.
func TestInitProcessGroup(t *testing.T) {
	const size = 2
	var ranks sync.WaitGroup
	for range 2 {
		_, address, run := store(t)
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range size {
			ranks.Go(func() {
				out := run("group.py", []string{
					"MASTER_ADDR=" + host, "MASTER_PORT=" + port, "TORCHELASTIC_USE_AGENT_STORE=True",
					"TORCHELASTIC_RESTART_COUNT=0", fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", size), "GLOO_SOCKET_IFNAME=lo",
				})
				if want := fmt.Sprintf("rank %d of %d: done\n", rank, size); out != want {
					t.Errorf("%q, want %q", out, want)
				}
			})
		}
	}
	ranks.Wait()
}

// TestAgents: unmodified agents of torchrun meet in the store by its backend c10d, and their
// workers form a group.
func TestAgents(t *testing.T) {
	const size = 2
	_, address, _ := store(t)
	python := pytorch.Python(t)
	var agents sync.WaitGroup
	for range size {
		agents.Go(func() {
			cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", "-m", "torch.distributed.run",
				"--nnodes", strconv.Itoa(size), "--rdzv_backend", "c10d", "--rdzv_conf", "is_host=false", "--rdzv_endpoint", address, "--rdzv_id", "test",
				filepath.Join("testdata", "group.py"))
			cmd.Env = append(os.Environ(), "GLOO_SOCKET_IFNAME=lo")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), fmt.Sprintf("of %d: done", size)) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	agents.Wait()
}
