package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/nccl/nccltest"
	"github.com/regroup-io/regroup/collective/tcp"
)

// member is a process that takes part in generations as its input says: one command per
// line, one answer per command.
type member struct {
	ctx      context.Context
	library  *nccl.Library
	device   *nccl.Device
	endpoint *collective.Endpoint
	jam      *jam
	open     []string // descriptors at the begin
	comm     *collective.Communicator
	engine   *Engine
}

func playMember() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*nccltest.Patience)
	defer cancel()
	m := &member{ctx: ctx}
	var err error
	if m.library, err = nccl.Open(nccl.Options{}); err != nil {
		return err
	}
	if err = fake.Steer(); err != nil {
		return err
	}
	if m.device, err = m.library.OpenDevice(ctx, nccltest.Atoi(os.Getenv("NCCL_TEST_DEVICE"))); err != nil {
		return err
	}
	transport, err := tcp.Listen(tcp.Options{})
	if err != nil {
		return err
	}
	if m.open, err = descriptors(); err != nil {
		return err
	}
	m.jam = &jam{Transport: transport}
	m.endpoint = collective.NewEndpoint(m.jam)
	fmt.Println("address", m.endpoint.Addr())
	commands := map[string]func([]string) (string, error){
		"form": m.form, "check": m.check, "fail": m.fail, "stop": m.stop, "leave": m.leave, "end": m.end,
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		answer, err := commands[words[0]](words[1:])
		if err != nil {
			return fmt.Errorf("%s: %w", os.Getenv("NCCL_TEST_NAME"), err)
		}
		fmt.Println(answer)
		if words[0] == "end" {
			return nil
		}
	}
	return errors.New("the test is gone")
}

// form joins a generation: number, rank, local rank, local size, addresses.
func (m *member) form(words []string) (string, error) {
	addresses := words[4:]
	var err error
	if m.comm != nil {
		_ = m.comm.Close()
	}
	m.comm, err = collective.New(m.ctx, collective.Options{
		Job: "job", Token: "t", Generation: uint64(nccltest.Atoi(words[0])), Rank: nccltest.Atoi(words[1]), World: len(addresses), Endpoint: m.endpoint,
		StallAfter: stall(),
		Peers:      func(_ context.Context, rank int) (string, error) { return addresses[rank], nil },
	})
	if err != nil {
		return "", err
	}
	if m.engine != nil {
		m.engine, err = m.engine.Next(m.ctx, m.comm, nccltest.Atoi(words[2]), nccltest.Atoi(words[3]))
	} else {
		m.engine, err = New(m.ctx, m.comm, Options{
			Device: m.device, LocalRank: nccltest.Atoi(words[2]), LocalSize: nccltest.Atoi(words[3]), ChunkBytes: 4096,
		})
	}
	if err != nil {
		return "", err
	}
	return "formed " + m.engine.Describe(), nil
}

// stall is the stall timeout in milliseconds: by default the length of the test, because machines
// that run many tests are slow.
func stall() time.Duration {
	if s := os.Getenv("NCCL_TEST_STALL"); s != "" {
		return time.Duration(nccltest.Atoi(s)) * time.Millisecond
	}
	return nccltest.Patience
}

// check runs the suite: "all" of it, or a part.
func (m *member) check(words []string) (string, error) {
	s, err := newSuite(m.ctx, m.engine)
	if err != nil {
		return "", err
	}
	return "right", errors.Join(s.run(words[0] != "all"), s.close())
}

// big is a buffer that takes many chunks.
const big = 1 << 18

// fail reduces until an error, and reports which rank was lost and when.
func (m *member) fail([]string) (string, error) {
	b, err := m.device.Alloc(m.ctx, big)
	if err != nil {
		return "", err
	}
	for {
		if err := m.engine.Allreduce(m.ctx, nil, b, kernel.Float32, collective.Sum).Wait(m.ctx); err != nil {
			at := time.Now().UnixNano()
			var lost *collective.PeerLostError
			if !errors.As(err, &lost) || !errors.Is(m.engine.Err(), collective.ErrPeerLost) {
				return "", fmt.Errorf("a failure that names nobody: %w", err)
			}
			if again := m.engine.Synchronize(m.ctx); !errors.Is(again, collective.ErrPeerLost) {
				return "", fmt.Errorf("and then: %w", again)
			}
			// The GPU may use the buffer until the engine is over.
			<-m.engine.watched
			return fmt.Sprintf("lost %d %d", lost.Rank, at), m.device.Free(m.ctx, b)
		}
	}
}

// stop stops in a phase of a reduction.
func (m *member) stop(words []string) (string, error) {
	b, err := m.device.Alloc(m.ctx, big)
	if err != nil {
		return "", err
	}
	reduce := func() *Task { return m.engine.Allreduce(m.ctx, nil, b, kernel.Float32, collective.Sum) }
	if err := reduce().Wait(m.ctx); err != nil {
		return "", err
	}
	fake.Calls()
	reached := func() bool { return slices.Contains(fake.Calls(), "frozen") }
	switch words[0] {
	case "gather": // NCCL, at first
		fake.Knob("freeze_in", 1)
	case "spread": // NCCL, at last
		fake.Knob("freeze_in", 2)
	case "down": // a copy to the host
		fake.Knob("hold_copies", 1)
		reached = func() bool { return slices.Contains(fake.Calls(), "DtoH") }
	case "up": // a copy from the host
		fake.Knob("hold_copies_up", 1)
		reached = func() bool { return slices.Contains(fake.Calls(), "HtoD") }
	case "network":
		m.jam.left.Store(2*4096 + 100)
		m.jam.on.Store(true)
		reached = m.jam.stuck.Load
	}
	reduce()
	for !reached() {
		if err := m.engine.Err(); err != nil {
			return "", err
		}
		time.Sleep(100 * time.Microsecond) // it polls the fake, which has no notification
	}
	return "stopped", nil
}

// leave closes the communicator, for a planned change.
func (m *member) leave([]string) (string, error) {
	err := m.engine.Synchronize(m.ctx)
	return "left", errors.Join(err, m.comm.Close())
}

// end closes everything, and checks that nothing is leaked.
func (m *member) end([]string) (string, error) {
	err := errors.Join(m.engine.Close(m.ctx), m.comm.Close(), m.endpoint.Close(), m.device.Close(m.ctx))
	for _, k := range nccltest.Kinds {
		if n := fake.Living(k); n != 0 {
			err = errors.Join(err, fmt.Errorf("%d %s are left", n, k))
		}
	}
	err = errors.Join(err, goleak.Find()) // it waits for goroutines that are ending
	open, failed := descriptors()
	if len(open) != len(m.open)-1 { // the listener's
		err = errors.Join(err, fmt.Errorf("descriptors %v are open, and at the begin %v", open, m.open))
	}
	return "ended", errors.Join(err, failed)
}

// descriptors lists the open file descriptors of this process, without the file that glibc's free
// opens for a moment, once in a process, before it returns memory of a thread's arena.
func descriptors() (open []string, err error) {
	const dir = "/proc/self/fd"
	list, err := os.ReadDir(dir)
	for _, f := range list {
		target, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err == nil && target != "/proc/sys/vm/overcommit_memory" {
			open = append(open, f.Name()+" "+target)
		}
	}
	return open, err
}

// jam is a transport that stops in the middle of what it sends, like the network of a
// process that is about to be killed.
type jam struct {
	collective.Transport
	on, stuck atomic.Bool
	left      atomic.Int64 // bytes until then
}

func (j *jam) Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := j.Transport.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &jammed{c, j}, nil
}

type jammed struct {
	net.Conn
	jam *jam
}

func (c *jammed) Write(p []byte) (int, error) {
	if c.jam.on.Load() && len(p) > 256 { // heartbeats continue
		if left := c.jam.left.Add(-int64(len(p))); left < 0 {
			_, _ = c.Conn.Write(p[:len(p)/2])
			c.jam.stuck.Store(true)
			select {} // until the process is killed
		}
	}
	return c.Conn.Write(p)
}
