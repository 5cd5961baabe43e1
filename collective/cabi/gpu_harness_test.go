//go:build cgo

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// The functions for GPUs, as a program that has loaded the library calls them: in processes,
// against an NCCL and a driver that need no GPU. Package nccltest says what that proves and what
// not.

// gpuPatience is how long a test waits for what must happen.
const gpuPatience = 60 * time.Second

// gpuJob is members that are processes; a member is the number of its GPU.
type gpuJob struct {
	ctx        context.Context
	env        []string
	members    map[int]*gpuMember
	generation int
}

type gpuMember struct {
	cmd     *exec.Cmd
	input   *os.File
	lines   *bufio.Scanner
	address string
}

// build builds the driver and libregroup.so, when a test needs them first.
var build = sync.OnceValue(func() error {
	if _, err := nccltest.Driver(folder); err != nil {
		return err
	}
	c := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-o", filepath.Join(folder, "libregroup.so"), ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func newGPUJob(t *testing.T, version int) *gpuJob {
	t.Helper()
	ok(t, build())
	native, err := nccltest.Variant{Version: version}.Library(folder)
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), gpuPatience)
	t.Cleanup(cancel)
	j := &gpuJob{ctx: ctx, members: map[int]*gpuMember{}}
	python, err := filepath.Abs("../../python")
	ok(t, err)
	for _, files := range []string{filepath.Join("testdata", "*.py"), filepath.Join(python, "regroup", "*.py")} {
		names, err := filepath.Glob(files)
		ok(t, err)
		for _, name := range names { // so that go test does not take a result of before they changed
			_, err := os.Stat(name)
			ok(t, err)
		}
	}
	j.env = append(os.Environ(), "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1", "REGROUP_LIBRARY="+filepath.Join(folder, "libregroup.so"),
		"REGROUP_CUDA_LIBRARY="+filepath.Join(folder, "libcuda.so.1"), "REGROUP_NCCL_LIBRARY="+native, "REGROUP_FAKE_DEVICES=4", "REGROUP_FAKE_STRICT=1",
		"REGROUP_FAKE_FOLDER="+folder)
	return j
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start makes a member; it is gone when the test ends.
func (j *gpuJob) start(t *testing.T, device int, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(j.ctx, "python3", filepath.Join("testdata", "gpu_member.py"), strconv.Itoa(device), filepath.Join(folder, "libcuda.so.1"))
	cmd.Env = append(j.env[:len(j.env):len(j.env)], env...)
	cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	ok(t, err)
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	_ = r.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = w.Close() })
	m := &gpuMember{cmd: cmd, input: w, lines: bufio.NewScanner(out)}
	m.address = m.expect(t, "address")
	j.members[device] = m
}

// expect reads the next line, which begins with word, and returns the rest.
func (m *gpuMember) expect(t *testing.T, word string) string {
	t.Helper()
	if !m.lines.Scan() {
		t.Fatalf("a member ended, %q expected", word)
	}
	rest, is := strings.CutPrefix(m.lines.Text(), word)
	if !is {
		t.Fatalf("%q, expected %q", m.lines.Text(), word)
	}
	return strings.TrimSpace(rest)
}

// form has nodes of members form a generation; it returns what each says, which begins with word.
func (j *gpuJob) form(t *testing.T, word string, nodes ...[]int) map[int]string {
	t.Helper()
	j.generation++
	var peers []string
	for _, node := range nodes {
		for _, device := range node {
			if j.members[device] == nil {
				j.start(t, device)
			}
			peers = append(peers, j.members[device].address)
		}
	}
	rank := 0
	for _, node := range nodes {
		for i, device := range node {
			fmt.Fprintln(j.members[device].input, "form", j.generation, rank, i, len(node), strings.Join(peers, " "))
			rank++
		}
	}
	said := map[int]string{}
	for device, m := range j.members {
		said[device] = m.expect(t, word)
	}
	return said
}

// do has all members do something.
func (j *gpuJob) do(t *testing.T, command, answer string) {
	t.Helper()
	for _, m := range j.members {
		fmt.Fprintln(m.input, command)
	}
	for device, m := range j.members {
		if said := m.expect(t, ""); said != answer {
			t.Fatalf("member %d, %s: %q, not %q", device, command, said, answer)
		}
	}
}

// kill kills a member in the middle of a reduction; the others must name its rank.
func (j *gpuJob) kill(t *testing.T, victim, rank int) {
	t.Helper()
	for device, m := range j.members {
		if device == victim {
			fmt.Fprintln(m.input, "stop")
		} else {
			fmt.Fprintln(m.input, "fail")
		}
	}
	p := j.members[victim]
	delete(j.members, victim)
	p.expect(t, "stopped")
	ok(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	for device, m := range j.members {
		if said := m.expect(t, "lost"); said != strconv.Itoa(rank) {
			t.Fatalf("member %d says that rank %s is lost, not %d", device, said, rank)
		}
	}
}

// leave ends a member cleanly.
func (j *gpuJob) leave(t *testing.T, device int) {
	t.Helper()
	m := j.members[device]
	delete(j.members, device)
	fmt.Fprintln(m.input, "end")
	m.expect(t, "ended")
	ok(t, m.cmd.Wait())
}

// end ends all members cleanly.
func (j *gpuJob) end(t *testing.T) {
	t.Helper()
	j.do(t, "end", "ended")
	for _, m := range j.members {
		ok(t, m.cmd.Wait())
	}
}
