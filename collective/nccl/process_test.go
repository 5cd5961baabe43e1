package nccl

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

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
	rank, world := nccltest.Atoi(os.Getenv("NCCL_TEST_RANK")), nccltest.Atoi(os.Getenv("NCCL_TEST_WORLD"))
	ctx, cancel := context.WithTimeout(context.Background(), nccltest.Patience)
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
		var survivors []int
		var id *UniqueID
		words := strings.Fields(line)
		for _, r := range strings.Split(words[0], ",") {
			survivors = append(survivors, nccltest.Atoi(r))
		}
		if len(words) > 1 {
			fresh := parseID(words[1])
			id = &fresh
		}
		next, err := survivorsOf(ctx, c, survivors, id)
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

func parseID(s string) (id UniqueID) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		panic(s)
	}
	return UniqueID(b)
}

// killed starts three ranks, kills the second in the middle of its work, and reforms the others.
func killed(t *testing.T, version int, freshID bool, remote bool, env ...string) {
	l := library(t, version)
	id, err := l.UniqueID()
	ok(t, err)
	path := fake.Build(t, nccltest.Variant{Version: version})
	var ranks []*nccltest.Process
	for rank := range 3 {
		ranks = append(ranks, fake.Start(t, "rank", append(env,
			"NCCL_TEST_RANK="+strconv.Itoa(rank), "NCCL_TEST_WORLD=3", "NCCL_TEST_ID="+hex.EncodeToString(id[:]),
			"REGROUP_FAKE_DEVICES=3", "REGROUP_NCCL_LIBRARY="+path, "REGROUP_CUDA_LIBRARY="+fake.Driver)...))
	}
	for _, p := range ranks {
		p.Expect(t, "running")
	}
	began := time.Now()
	ok(t, ranks[1].Cmd.Process.Signal(syscall.SIGKILL))
	_ = ranks[1].Cmd.Wait() // without a wait the process would keep its id
	survivors := []*nccltest.Process{ranks[0], ranks[2]}
	order := "0,2"
	if freshID {
		id, err := l.UniqueID()
		ok(t, err)
		order += " " + hex.EncodeToString(id[:])
	}
	if remote { // NCCL detects the loss itself
		for _, p := range survivors {
			if said := p.Expect(t, "lost"); said != "true false" {
				t.Errorf("lost: %s", said)
			}
		}
	}
	for _, p := range survivors {
		fmt.Fprintln(p.Input, order)
	}
	for i, p := range survivors {
		if !remote {
			if said := p.Expect(t, "lost"); said != "false true" {
				t.Errorf("lost: %s", said)
			}
		}
		if said := p.Expect(t, "reformed"); said != fmt.Sprintf("%d 2", i) {
			t.Errorf("reformed: %s", said)
		}
	}
	t.Logf("the first sum of those that are left after %v", time.Since(began).Round(time.Millisecond))
	for _, p := range survivors {
		ok(t, p.Cmd.Wait())
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
