package collective

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/tcp"
)

// rankVariable tells the test binary to be one rank of a real process group.
const rankVariable = "COLLECTIVE_TEST_RANK"

// part describes such a process.
type part struct {
	Rank, World int
	Shared      bool   // ranks share memory
	Bytes       int    // of the tensor
	Memory      string // "mapped", or "arena"
}

// runAsRank is the program of such a process. It prints its address, reads everyone's, and
// reduces until that fails. It gives the memory away at once and prints the failure and when.
// Told to check, it says whether another process has written into that memory since.
func runAsRank() bool {
	var p part
	if json.Unmarshal([]byte(os.Getenv(rankVariable)), &p) != nil {
		return false
	}
	if err := p.play(); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	return true
}

// instructions are the lines that the test writes. The process ends with the test.
func instructions() <-chan string {
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		os.Exit(3)
	}()
	return lines
}

func (p part) play() error {
	tr, err := tcp.Listen(tcp.Options{})
	if err != nil {
		return err
	}
	lines, e := instructions(), NewEndpoint(tr)
	fmt.Println("addr", e.Addr())
	addrs := strings.Fields(<-lines)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o := Options{
		Job: "processes", Generation: 3, Token: "t", Rank: p.Rank, World: p.World, Endpoint: e, StallAfter: time.Second,
		Peers: func(_ context.Context, r int) (string, error) { return addrs[r], nil },
	}
	if p.Shared {
		o.LocalRank, o.LocalSize = p.Rank, p.World
	}
	c, err := New(ctx, o)
	if err != nil {
		return err
	}
	memory, give, err := p.memory(e)
	if err != nil {
		return err
	}
	for i := 0; err == nil; i++ {
		if i == 3 {
			fmt.Println("running", c.Describe())
		}
		err = c.Allreduce(ctx, Tensor{kernel.Float32, memory}, Average)
	}
	at := time.Now().UnixNano()
	if memory, err = give(), errors.Join(err); memory == nil {
		return fmt.Errorf("no other memory: %w", err)
	}
	fill := bytes.Repeat([]byte{reused}, len(memory))
	copy(memory, fill)
	var lost *PeerLostError
	if !errors.As(err, &lost) {
		return err
	}
	fmt.Println("lost", lost.Rank, at)
	_ = c.Close()
	<-lines
	if !bytes.Equal(memory, fill) {
		return errors.New("another process wrote into memory after the operation on it had failed")
	}
	fmt.Println("clean")
	return e.Close()
}

// memory returns that of the tensor, and what gives it away and returns what is there then.
func (p part) memory(e *Endpoint) (memory []byte, give func() []byte, err error) {
	if p.Memory == "arena" {
		memory, err = e.Alloc(p.Bytes)
		return memory, func() []byte {
			e.Free(memory)
			next, _ := e.Alloc(p.Bytes)
			return next
		}, err
	}
	anonymous := func() ([]byte, error) {
		return unix.Mmap(-1, 0, p.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	}
	memory, err = anonymous()
	return memory, func() []byte {
		// For a moment nobody may even look at it.
		if err := errors.Join(unix.Munmap(memory)); err != nil {
			return nil
		}
		next, _ := anonymous()
		return next
	}, err
}
