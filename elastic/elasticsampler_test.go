package elastic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/elastic/samples"
)

// S5 again: forgetting is seen in the ledger, because an epoch that was dealt out is closed.
func TestForgettingToRecordIsSeen(t *testing.T) {
	errs := sessions(t, 2, func(ctx context.Context, s *Session) error {
		e := samples.NewElasticSampler(10, 3)
		s.state = NewState(nil)
		s.state.SetElasticSampler(e)
		e.DealTo(s.Rank, s.World)
		for i := 0; !e.Finished(); i++ {
			b := e.Next(2)
			if err := s.Consume(ctx, b); err != nil {
				return err
			}
			if s.Rank == 0 || i != 1 {
				if err := e.Record(b); err != nil {
					return err
				}
			}
		}
		e.SetEpoch(1)
		if err := s.Commit(ctx); err != nil {
			return err
		}
		if err := samples.CheckLedger(s.state.Ledger()); !strings.Contains(fmt.Sprint(err), "2 of 10 samples are missing") {
			return fmt.Errorf("the ledger %+v: %w", s.state.Ledger(), err)
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyOneSampler(t *testing.T) {
	s := NewState(samples.NewSampler(10, 1))
	s.SetElasticSampler(samples.NewElasticSampler(10, 1))
	if err := Run(t.Context(), Options{}, s, nil); err == nil || !strings.Contains(err.Error(), "one sampler") {
		t.Errorf("error %v", err)
	}
}
