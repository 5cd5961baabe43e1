package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// commandVariable makes the test binary act as the command, because the command starts itself.
const commandVariable = "GPUCHECK_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// check runs the command against a fake and returns what it printed.
func check(t *testing.T, version, wantCode int, env ...string) string {
	t.Helper()
	return checkWith(t, os.Args[0], version, wantCode, env...)
}

func checkWith(t *testing.T, command string, version, wantCode int, env ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake") //nolint:usetesting // short, because its name is part of unique ids
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cuda, err := nccltest.Driver(dir)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := nccltest.Variant{Version: version}.Library(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, "-bytes", "65536", "-limit", "15s", "-notice", "50ms")
	cmd.Env = append(os.Environ(), commandVariable+"=1", "REGROUP_FAKE_FOLDER="+dir, "REGROUP_CUDA_LIBRARY="+cuda, "REGROUP_NCCL_LIBRARY="+lib)
	// The race detector sleeps a second at the end of each process.
	cmd.Env = append(append(cmd.Env, "REGROUP_FAKE_STRICT=1", "GORACE=atexit_sleep_ms=0"), env...)
	out, err := cmd.CombinedOutput()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != wantCode {
		t.Fatalf("exit code %d, not %d:\n%s", code, wantCode, out)
	}
	return string(out)
}

// contains checks that some line holds all words.
func contains(t *testing.T, out string, words ...string) {
	t.Helper()
line:
	for line := range strings.Lines(out) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue line
			}
		}
		return
	}
	t.Errorf("no line with %q in\n%s", words, out)
}

func TestAllPassesOnTwoGPUs(t *testing.T) {
	out := check(t, 23007, 0, "REGROUP_FAKE_DEVICES=2")
	contains(t, out, "NCCL 2.30.7", "ok")
	contains(t, out, "two GPUs: sum", "ok")
	contains(t, out, "engine, two nodes: sum", "ok", "through NCCL 2.30.7 (new), 2 nodes over connections")
	// Whether NCCL was running on the survivor's node when the other died is random.
	next := regexp.MustCompile(`engine, two nodes: kill, next +ok +rank 1 named.*through NCCL 2\.30\.7 \((kept|shrunk)\)`)
	if !next.MatchString(out) {
		t.Errorf("no line like %v in\n%s", next, out)
	}
	contains(t, out, "two GPUs: kill, new id", "ok", "did not notice", "by: abort and start anew")
	contains(t, out, "two GPUs: kill, reform", "ok", "did not notice", "by: revoke and shrink")
	contains(t, out, "0 not possible here, 0 FAILED")
}

func TestTwoRanksShareAGPUWhereTheVersionPermits(t *testing.T) {
	out := check(t, 23007, 0, "REGROUP_FAKE_DEVICES=1", "REGROUP_FAKE_NOTICE_DEATH=1")
	contains(t, out, "one GPU for two ranks: sum", "ok")
	contains(t, out, "one GPU for two ranks: kill, reform", "ok", "NCCL noticed after", "a fresh id is needed")
	contains(t, out, "one GPU as of two hosts: sum", "ok")
}

func TestTwoRanksShareAGPUAsOfTwoHostsBefore(t *testing.T) {
	out := check(t, 22809, 0, "REGROUP_FAKE_DEVICES=1")
	contains(t, out, "one GPU as of two hosts: kill, reform", "ok", "by: revoke and shrink")
	if strings.Contains(out, "one GPU for two ranks") {
		t.Errorf("2.28 cannot do that:\n%s", out)
	}
}

func TestAnOldVersionLacksMuchAndPasses(t *testing.T) {
	out := check(t, 21403, 0, "REGROUP_FAKE_DEVICES=2")
	contains(t, out, "Reform by revoking", "not possible here", "came with NCCL 2.28.7")
	contains(t, out, "reform alone", "not possible here", "came with 2.27.3")
	contains(t, out, "two GPUs: kill, reform", "ok", "a fresh id is needed")
}

func TestWhatMustWorkAndDoesNotIsAFailure(t *testing.T) {
	out := check(t, 23007, 1, "REGROUP_FAKE_DEVICES=2", "REGROUP_FAKE_FAIL_CALL=5")
	contains(t, out, "all-reduce", "FAILED", "ncclInvalidUsage")
}

func TestAMachineWithoutAGPUOrNCCLIsReportedInOneLine(t *testing.T) {
	for variable, words := range map[string]string{
		"REGROUP_FAKE_DEVICES=-1":       "CUDA_ERROR_NO_DEVICE",
		"REGROUP_NCCL_LIBRARY=/nowhere": "libnccl.so.2 is not available",
		"REGROUP_CUDA_LIBRARY=/nowhere": "libcuda.so.1 is not available",
	} {
		out := check(t, 23007, unarmed, variable)
		contains(t, out, "nothing was checked", words)
		if strings.Count(out, "\n") != 1 {
			t.Errorf("more than a line:\n%s", out)
		}
	}
}

func TestTheCommandNeedsNoCgo(t *testing.T) {
	command := filepath.Join(t.TempDir(), "gpucheck")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", command, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	contains(t, checkWith(t, command, 23007, good, "REGROUP_FAKE_DEVICES=2"), "0 not possible here, 0 FAILED")
}

func TestTwoRanksThatCannotShareAGPUAreNoFailure(t *testing.T) {
	out := check(t, 22809, 0, "REGROUP_FAKE_DEVICES=1", "REGROUP_FAKE_ONE_HOST=1")
	contains(t, out, "one GPU as of two hosts: sum", "not possible here", "Duplicate GPU detected")
}
