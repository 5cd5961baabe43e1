package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/reproducible"
	"github.com/regroup-io/regroup/elastic/samples"
)

const (
	momentum = 0.9
	// checkEvery is the number of steps after which reproducible states are compared.
	checkEvery = 100
)

// trainer is the program: its registered state survives, everything else is created anew.
type trainer struct {
	config
	training, testing digits
	out               io.Writer
	losses            io.Writer // gets the loss of each step; may be nil
	model             *model
	velocity          []float32
	grads             []float32 // the gradients, followed by the loss
	mean              samples.Mean
	gradients         *reproducible.Accumulator // used instead of mean with -reproducible; else nil
	results           results
	state             *elastic.State
	rank              int                                 // in the last generation
	beforeStep        func(s *elastic.Session)            // test hook; may be nil
	afterMicro        func(s *elastic.Session, micro int) // likewise
}

// results are the printed figures.
type results struct {
	Loss     float64 `json:"loss"`     // of the last step, mean over the batch
	Accuracy float64 `json:"accuracy"` // on the test part, after the last full epoch
}

func newTrainer(c config, training, testing digits, out io.Writer) *trainer {
	t := &trainer{
		config: c, training: training, testing: testing, out: out, model: newModel(c.seed),
		velocity: make([]float32, parameters), grads: make([]float32, parameters+1),
	}
	t.state = elastic.NewState(samples.NewSampler(uint64(training.len()), c.seed))
	elastic.Tensor(t.state, "weights", t.model.weights)
	elastic.Tensor(t.state, "velocity", t.velocity)
	t.state.Object("results", &t.results)
	if c.reproducible { // each layer is scaled alone
		t.gradients = reproducible.New(t.state, "gradients", atB1, atW2-atB1, atB2-atW2, parameters-atB2, 1)
		t.gradients.Witness(c.witness)
	}
	return t
}

// train runs from the current state to the last epoch. It is called again in every generation.
func (t *trainer) train(ctx context.Context, s *elastic.Session) error {
	t.rank = s.Rank
	s.Report(t.metrics())
	for s.Epoch() < uint64(t.epochs) {
		pace := time.After(t.stepTime)
		if t.beforeStep != nil {
			t.beforeStep(s)
		}
		b := s.NextMicro(t.batch, t.micro)
		if err := t.step(ctx, s, b); err != nil {
			return err
		}
		if b.Last {
			if err := t.evaluate(ctx, s); err != nil {
				return err
			}
		}
		s.Report(t.metrics())
		t.print(s, b)
		if s.CommitDue(t.commitEvery) {
			if err := s.Commit(ctx); err != nil {
				return err
			}
		}
		if s.Step()%checkEvery == 0 {
			if err := t.checkState(ctx, s); err != nil {
				return err
			}
		}
		select {
		case <-pace:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return t.checkState(ctx, s)
}

// checkState compares the states of the workers, and reports their hash to the job.
func (t *trainer) checkState(ctx context.Context, s *elastic.Session) error {
	if t.gradients == nil {
		return nil
	}
	_, err := reproducible.CheckState(ctx, s, map[string][]float32{"weights": t.model.weights, "velocity": t.velocity})
	return err
}

// step trains on this worker's share of one batch.
func (t *trainer) step(ctx context.Context, s *elastic.Session, b samples.Batch) error {
	if err := t.average(ctx, s, b); err != nil {
		return err
	}
	t.results.Loss = float64(t.grads[parameters])
	rate := float32(t.rate)
	for i, w := range t.model.weights {
		t.velocity[i] = momentum*t.velocity[i] + t.grads[i]
		t.model.weights[i] = w - rate*t.velocity[i]
	}
	return nil
}

// average makes grads the mean over the samples of the batch of all workers.
func (t *trainer) average(ctx context.Context, s *elastic.Session, b samples.Batch) error {
	backward := func(indices []int, mean []float32) {
		mean[parameters] = float32(t.model.backward(t.training, indices, mean[:parameters]))
	}
	if t.gradients != nil {
		return t.gradients.Average(ctx, s, b, t.grads, func(m int, indices []int, mean []float32) error {
			backward(indices, mean)
			if t.afterMicro != nil {
				t.afterMicro(s, m)
			}
			return nil
		})
	}
	err := t.mean.Of(b, t.grads, func(indices []int, mean []float32) error {
		backward(indices, mean)
		return nil
	})
	if err != nil {
		return err
	}
	return s.AverageGradients(ctx, b, t.grads)
}

// hash names the bits of the weights.
func (t *trainer) hash() string {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, t.model.weights) // a hash takes everything
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// evaluate measures the accuracy: each worker reads a part of the test pictures.
func (t *trainer) evaluate(ctx context.Context, s *elastic.Session) error {
	n := t.testing.len()
	count := []int64{int64(t.model.correct(t.testing, n*s.Rank/s.World, n*(s.Rank+1)/s.World))}
	if err := collective.Allreduce(ctx, s.Comm(), count, collective.Sum); err != nil {
		return err
	}
	t.results.Accuracy = float64(count[0]) / float64(n)
	return nil
}

func (t *trainer) metrics() map[string]float64 {
	m := map[string]float64{"loss": t.results.Loss}
	if t.results.Accuracy > 0 {
		m["accuracy"] = t.results.Accuracy
	}
	return m
}

func (t *trainer) print(s *elastic.Session, b samples.Batch) {
	if s.Rank != 0 {
		return
	}
	if t.losses != nil {
		fmt.Fprintln(t.losses, s.Step(), t.results.Loss)
	}
	if s.Step()%20 == 0 {
		fmt.Fprintf(t.out, "epoch %d step %d loss %.3f\n", b.Epoch, s.Step(), t.results.Loss)
	}
	if b.Last {
		fmt.Fprintf(t.out, "epoch %d step %d accuracy %.3f\n", b.Epoch, s.Step(), t.results.Accuracy)
	}
}
