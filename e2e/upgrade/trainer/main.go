// Command trainer is a program under restart recovery: it knows nothing of Regroup but the
// environment that torchrun gives as well, and keeps its state in a checkpoint on disk. It writes
// down each sample in the records of e2e/record, as e2e/recorder does for in-process recovery, so
// that the same proof holds for both. Rank 0 leads: a file of its folder says where it listens, a
// step counts when it has heard from all ranks, and training ends with the step in which it finds
// the file "finish".
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// checkpoint is the state: what the next step begins with.
type checkpoint struct {
	Step     uint64
	Epoch    uint64
	Position uint64 // samples of the epoch that were taken
}

// trainer is one worker.
type trainer struct {
	dir            string
	samples, batch uint64
	every          uint64 // steps between checkpoints
	stepTime       time.Duration

	rank, world, generation uint64
	state                   checkpoint
	file                    *os.File
	peers                   []net.Conn     // of rank 0: all others; else rank 0
	beforeStep              func(*trainer) // of a test; nil = nothing
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "trainer:", err)
		os.Exit(1)
	}
}

func run() error {
	var t trainer
	flag.StringVar(&t.dir, "dir", "", "folder of the records and of the checkpoint")
	flag.DurationVar(&t.stepTime, "step-time", 10*time.Millisecond, "how long the work of a step lasts")
	flag.Uint64Var(&t.samples, "samples", 6000, "samples of an epoch")
	flag.Uint64Var(&t.batch, "batch", 60, "samples of a step, over all workers")
	flag.Uint64Var(&t.every, "commit-every", 10, "steps between checkpoints")
	flag.Parse()
	if t.dir == "" || t.samples < 1 || t.batch < 1 || t.every < 1 {
		return errors.New("-dir must be given, -samples, -batch and -commit-every be positive")
	}
	for name, into := range map[string]*uint64{"RANK": &t.rank, "WORLD_SIZE": &t.world, "REGROUP_GENERATION": &t.generation} {
		n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*into = n
	}
	return t.run()
}

// run is one worker from its first record to its last.
func (t *trainer) run() (err error) {
	name := fmt.Sprintf("%d-%d-%d.rec", t.generation, t.rank, time.Now().UnixNano())
	if t.file, err = os.OpenFile(filepath.Join(t.dir, name), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.file.Close()) }()
	if err := t.connect(); err != nil {
		return err
	}
	defer func() {
		for _, c := range t.peers {
			_ = c.Close() // so that the others do not wait
		}
	}()
	if err := t.begin(); err != nil {
		return err
	}
	return t.train()
}

// connect connects rank 0 with all others.
func (t *trainer) connect() error {
	leader := filepath.Join(t.dir, fmt.Sprintf("leader-%d", t.generation))
	if t.rank != 0 {
		// Rank 0 may not listen yet. The agent ends workers that wait in vain.
		retry := time.NewTicker(10 * time.Millisecond)
		defer retry.Stop()
		for {
			address, err := os.ReadFile(leader)
			var c net.Conn
			if err == nil {
				c, err = net.Dial("tcp", string(address))
			}
			if err == nil {
				t.peers = []net.Conn{c}
				return nil
			}
			<-retry.C
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	if err := os.WriteFile(leader+".new", []byte(l.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(leader+".new", leader); err != nil {
		return err
	}
	for uint64(len(t.peers)) < t.world-1 {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		t.peers = append(t.peers, c)
	}
	return nil
}

// begin gives all ranks the state of the checkpoint that rank 0 finds.
func (t *trainer) begin() error {
	if t.rank == 0 {
		b, err := os.ReadFile(t.checkpointFile())
		if err == nil {
			err = json.Unmarshal(b, &t.state)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if b, err = json.Marshal(t.state); err != nil {
			return err
		}
		for _, c := range t.peers {
			if _, err := c.Write(append(b, '\n')); err != nil {
				return err
			}
		}
	} else {
		line, err := readLine(t.peers[0])
		if err != nil {
			return err
		}
		if err := json.Unmarshal(line, &t.state); err != nil {
			return err
		}
	}
	return t.write('B', nil, t.generation, t.rank, t.world, t.state.Step)
}

// readLine reads byte by byte: what follows the line is not for it.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, one); err != nil {
			return nil, err
		}
		if one[0] == '\n' {
			return line, nil
		}
		line = append(line, one[0])
	}
}

func (t *trainer) train() error {
	for last := false; !last; {
		if t.beforeStep != nil {
			t.beforeStep(t)
		}
		s := &t.state
		end := min(s.Position+t.batch, t.samples)
		var share []uint64
		for i := s.Position + t.rank; i < end; i += t.world {
			share = append(share, i)
		}
		if err := t.write('S', share, t.generation, s.Step+1, s.Epoch); err != nil {
			return err
		}
		time.Sleep(t.stepTime) // stands for computing
		var err error
		if last, err = t.barrier(); err != nil {
			return err
		}
		s.Step++
		if s.Position = end; end == t.samples {
			s.Epoch, s.Position = s.Epoch+1, 0
		}
		if err := t.write('D', nil, t.generation, s.Step); err != nil {
			return err
		}
		if t.rank == 0 && (last || s.Step%t.every == 0) {
			if err := t.save(); err != nil {
				return err
			}
		}
	}
	return t.write('E', nil, t.state.Step, t.state.Epoch, t.state.Position)
}

// barrier returns once all ranks have come to it, and whether this was the last step.
func (t *trainer) barrier() (last bool, err error) {
	one := make([]byte, 1)
	if t.rank != 0 {
		if _, err := t.peers[0].Write(one); err != nil {
			return false, err
		}
		_, err := io.ReadFull(t.peers[0], one)
		return one[0] != 0, err
	}
	for _, c := range t.peers {
		if _, err := io.ReadFull(c, one); err != nil {
			return false, err
		}
	}
	if _, err := os.Stat(filepath.Join(t.dir, "finish")); err == nil {
		last, one[0] = true, 1
	}
	for _, c := range t.peers {
		if _, err := c.Write(one); err != nil {
			return false, err
		}
	}
	return last, nil
}

func (t *trainer) checkpointFile() string { return filepath.Join(t.dir, "checkpoint.json") }

// save writes the checkpoint, whole or not at all.
func (t *trainer) save() error {
	b, err := json.Marshal(t.state)
	if err != nil {
		return err
	}
	part := t.checkpointFile() + ".part"
	if err := os.WriteFile(part, b, 0o600); err != nil {
		return err
	}
	if err := os.Rename(part, t.checkpointFile()); err != nil {
		return err
	}
	return t.write('C', nil, t.generation, t.state.Step)
}

// write writes one line of the record with one call, so that it is there whole or not at all.
func (t *trainer) write(kind byte, more []uint64, numbers ...uint64) error {
	line := append([]byte{kind, ' '}, strconv.FormatInt(time.Now().UnixNano(), 10)...)
	for _, n := range append(numbers, more...) {
		line = strconv.AppendUint(append(line, ' '), n, 10)
	}
	_, err := t.file.Write(append(line, '\n'))
	return err
}
