// Command recorder is a worker that records its steps outside of Regroup: before each step it
// writes which samples it uses, and afterwards that the step was made. A record is in the page
// cache before the step's reduction begins, so even SIGKILL cannot lose one of a step that counts.
// Package record reads the records. The training state counts too how often each sample was trained
// on, over all workers. Training ends with the step in which a worker finds the file "finish" in
// the directory of the records.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/e2e/program"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/wait"
)

type recorder struct {
	samples, batch, commitEvery int
	stepTime                    time.Duration

	dir   string
	file  *os.File
	line  []byte
	seen  []int32 // by sample: how often it was trained on
	step  []int32 // what this step adds to it, and the number of workers that have found the file
	done  bool    // this worker has made the last step
	state *elastic.State
}

func main() {
	var r recorder
	flag.StringVar(&r.dir, "dir", "", "folder of the records, one file for each life of a worker")
	flag.DurationVar(&r.stepTime, "step-time", 10*time.Millisecond, "how long the work of a step lasts")
	flag.IntVar(&r.samples, "samples", 6000, "samples of an epoch")
	flag.IntVar(&r.batch, "batch", 60, "samples of a step, over all workers")
	flag.IntVar(&r.commitEvery, "commit-every", 10, "steps between commits")
	program.Main("recorder", r.run)
}

func (r *recorder) run(ctx context.Context) (err error) {
	if r.dir == "" || r.samples < 1 || r.batch < 1 || r.commitEvery < 1 {
		return errors.New("-dir must be given, -samples, -batch and -commit-every be positive")
	}
	options, err := elastic.FromEnv()
	if err != nil {
		return err
	}
	// The file name is unique to this process: slot, incarnation and pid.
	name := fmt.Sprintf("%s-%s-%s-%d.rec", os.Getenv("REGROUP_NODE"), os.Getenv("REGROUP_SLOT"), os.Getenv("REGROUP_ATTEMPT"), time.Now().UnixNano())
	if r.file, err = os.OpenFile(filepath.Join(r.dir, name), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.file.Close()) }()
	r.seen, r.step = make([]int32, r.samples), make([]int32, r.samples+1)
	r.state = elastic.NewState(samples.NewSampler(uint64(r.samples), 1))
	elastic.Tensor(r.state, "seen", r.seen)
	if err := elastic.Run(ctx, options, r.state, r.train); errors.Is(err, elastic.ErrUnfinished) {
		return nil // the result is incomplete on this rank
	} else if err != nil {
		return err
	}
	return r.end()
}

func (r *recorder) train(ctx context.Context, s *elastic.Session) error {
	if err := r.write('B', s.Generation, uint64(s.Rank), uint64(s.World), s.Step()); err != nil {
		return err
	}
	for r.done = false; !r.done; {
		b := s.Next(r.batch)
		if !wait.Sleep(ctx, r.stepTime) {
			return context.Cause(ctx)
		}
		if err := r.intend(s, b); err != nil {
			return err
		}
		clear(r.step)
		for _, i := range b.Indices {
			r.step[i]++
		}
		if _, err := os.Stat(filepath.Join(r.dir, "finish")); err == nil {
			r.step[r.samples] = 1
		}
		if err := collective.Allreduce(ctx, s.Comm(), r.step, collective.Sum); err != nil {
			return err
		}
		if err := s.Consume(ctx, b); err != nil {
			return err
		}
		for i := range r.seen {
			r.seen[i] += r.step[i]
		}
		r.done = r.step[r.samples] > 0
		if err := r.write('D', s.Generation, s.Step()); err != nil {
			return err
		}
		if !s.CommitDue(r.commitEvery) {
			continue
		}
		err := s.Commit(ctx)
		if err == nil || errors.Is(err, elastic.ErrPlannedChange) || errors.Is(err, elastic.ErrStopped) {
			err = errors.Join(err, r.write('C', s.Generation, s.Step()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// intend records the samples that this worker uses in the next step.
func (r *recorder) intend(s *elastic.Session, b samples.Batch) error {
	r.line = r.begin('S', s.Generation, s.Step()+1, b.Epoch)
	for _, i := range b.Indices {
		r.line = strconv.AppendInt(append(r.line, ' '), int64(i), 10)
	}
	return r.flush()
}

func (r *recorder) write(kind byte, numbers ...uint64) error {
	r.line = r.begin(kind, numbers...)
	return r.flush()
}

// begin starts a line with its kind, the time, and numbers.
func (r *recorder) begin(kind byte, numbers ...uint64) []byte {
	line := append(r.line[:0], kind, ' ')
	line = strconv.AppendInt(line, time.Now().UnixNano(), 10)
	for _, n := range numbers {
		line = strconv.AppendUint(append(line, ' '), n, 10)
	}
	return line
}

// flush writes the line with one system call, so that it is atomic.
func (r *recorder) flush() error {
	_, err := r.file.Write(append(r.line, '\n'))
	return err
}

// end checks the state of a worker that has made the last step: each sample was trained on once in
// each finished epoch.
func (r *recorder) end() error {
	c := r.state.Cursor()
	var unfinished uint64
	for i, n := range r.seen {
		switch uint64(n) {
		case c.Epoch:
		case c.Epoch + 1:
			unfinished++
		default:
			return fmt.Errorf("sample %d was trained on %d times in %d epochs", i, n, c.Epoch)
		}
	}
	if unfinished != c.Position {
		return fmt.Errorf("%d samples of the last epoch were trained on, its cursor is at %d", unfinished, c.Position)
	}
	if err := samples.CheckLedger(r.state.Ledger()); err != nil {
		return err
	}
	return r.write('E', r.state.Step(), c.Epoch, c.Position)
}
