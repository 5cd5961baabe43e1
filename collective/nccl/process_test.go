package nccl

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// roleVariable gives the test binary another role than running tests.
const roleVariable = "NCCL_TEST_ROLE"

func play(role string) int {
	err := map[string]func() error{"open": playOpen, "rank": playRank, "member": playMember}[role]()
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// playOpen opens the libraries as configured by the environment.
func playOpen() error {
	if path := os.Getenv("NCCL_TEST_LOADED"); path != "" {
		if _, err := purego.Dlopen(path, purego.RTLD_NOW); err != nil {
			return err
		}
	}
	l, err := Open(Options{Search: strings.Fields(os.Getenv("NCCL_TEST_SEARCH"))})
	if err != nil {
		return err
	}
	cuda, nccl := l.From()
	fmt.Println("found", cuda, "and", nccl, l.Version(), l.Driver())
	list, err := l.Devices()
	for _, d := range list {
		fmt.Println("device", d.Ordinal, d.Name, d.UUID, d.Bytes>>30)
	}
	return err
}

// playRank reduces until an error, and then follows its input.
func playRank() error {
	rank, world := atoi(os.Getenv("NCCL_TEST_RANK")), atoi(os.Getenv("NCCL_TEST_WORLD"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := Open(Options{})
	if err != nil {
		return err
	}
	d, err := l.OpenDevice(ctx, rank)
	if err != nil {
		return err
	}
	c, err := d.Init(ctx, CommOptions{Rank: rank, World: world, ID: parseID(os.Getenv("NCCL_TEST_ID"))})
	if err != nil {
		return err
	}
	type outcome struct {
		comm *Comm
		err  error
	}
	reformed := make(chan outcome, 1)
	go func() { // the control plane
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			reformed <- outcome{nil, err}
			return
		}
		var s Survivors
		words := strings.Fields(line)
		for _, r := range strings.Split(words[0], ",") {
			s.Ranks = append(s.Ranks, atoi(r))
		}
		if len(words) > 1 {
			id := parseID(words[1])
			s.ID = &id
		}
		next, err := c.Reform(ctx, s)
		reformed <- outcome{next, err}
	}()
	b, err := d.Alloc(ctx, 1<<16)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err = reduceInPlace(ctx, c, b); err != nil {
			break
		}
		if i == 3 {
			fmt.Println("running")
		}
	}
	fmt.Println("lost", errors.Is(err, ErrRemote), errors.Is(err, ErrAborted))
	o := <-reformed
	if o.err != nil {
		return o.err
	}
	if err := reduceInPlace(ctx, o.comm, b); err != nil {
		return err
	}
	fmt.Println("reformed", o.comm.Rank(), o.comm.World())
	return errors.Join(o.comm.Close(ctx), d.Free(ctx, b), d.Close(ctx))
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func parseID(s string) (id UniqueID) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		panic(s)
	}
	return UniqueID(b)
}

type process struct {
	cmd   *exec.Cmd
	input *os.File
	lines *bufio.Scanner
}

// start starts a process with a role; it is killed when the test ends.
func start(t *testing.T, role string, env ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(soon(t), os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "REGROUP_FAKE_FOLDER="+dir, "REGROUP_FAKE_STRICT=1",
		"GORACE=atexit_sleep_ms=0") // else the race detector sleeps a second
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	ok(t, err)
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	_ = r.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = w.Close() })
	return &process{cmd, w, bufio.NewScanner(out)}
}

// expect reads the next line, which begins with word, and returns the rest.
func (p *process) expect(t *testing.T, word string) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the process ended, %q expected", word)
	}
	rest, is := strings.CutPrefix(p.lines.Text(), word+" ")
	if !is && p.lines.Text() != word {
		t.Fatalf("%q, expected %q", p.lines.Text(), word)
	}
	return rest
}

// killed starts three ranks, kills the second in the middle of its work, and reforms the others.
func killed(t *testing.T, version int, freshID bool, remote bool, env ...string) {
	l := library(t, version)
	id, err := l.UniqueID()
	ok(t, err)
	path := build(t, nccltest.Variant{Version: version})
	var ranks []*process
	for rank := range 3 {
		ranks = append(ranks, start(t, "rank", append(env,
			"NCCL_TEST_RANK="+strconv.Itoa(rank), "NCCL_TEST_WORLD=3", "NCCL_TEST_ID="+hex.EncodeToString(id[:]),
			"REGROUP_FAKE_DEVICES=3", "REGROUP_NCCL_LIBRARY="+path, "REGROUP_CUDA_LIBRARY="+driver)...))
	}
	for _, p := range ranks {
		p.expect(t, "running")
	}
	began := time.Now()
	ok(t, ranks[1].cmd.Process.Signal(syscall.SIGKILL))
	_ = ranks[1].cmd.Wait() // without a wait the process would keep its id
	survivors := []*process{ranks[0], ranks[2]}
	order := "0,2"
	if freshID {
		id, err := l.UniqueID()
		ok(t, err)
		order += " " + hex.EncodeToString(id[:])
	}
	if remote { // NCCL detects the loss itself
		for _, p := range survivors {
			if said := p.expect(t, "lost"); said != "true false" {
				t.Errorf("lost: %s", said)
			}
		}
	}
	for _, p := range survivors {
		fmt.Fprintln(p.input, order)
	}
	for i, p := range survivors {
		if !remote {
			if said := p.expect(t, "lost"); said != "false true" {
				t.Errorf("lost: %s", said)
			}
		}
		if said := p.expect(t, "reformed"); said != fmt.Sprintf("%d 2", i) {
			t.Errorf("reformed: %s", said)
		}
	}
	t.Logf("the first sum of those that are left after %v", time.Since(began).Round(time.Millisecond))
	for _, p := range survivors {
		ok(t, p.cmd.Wait())
	}
}

func TestProcessesGoOnAfterAKillThatNCCLDoesNotNotice(t *testing.T) {
	for version, freshID := range map[int]bool{21403: true, 22703: false, 22809: false} {
		t.Run(Version(version).String(), func(t *testing.T) { killed(t, version, freshID, false) })
	}
}

func TestProcessesGoOnAfterAKillThatNCCLNotices(t *testing.T) {
	killed(t, 23007, true, true, "REGROUP_FAKE_NOTICE_DEATH=1")
}
