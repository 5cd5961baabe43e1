package nccl

import (
	"context"
	"errors"
	"fmt"
)

// seat is what an engine works with on its GPU, and hands on to the next.
type seat struct {
	dev    *Device
	stream *Stream // NCCL's, and of copies on the GPU
	stages [2]*Stage
	opt    EngineOptions
}

// stage returns one of two, which is made when it is needed first.
func (s *seat) stage(ctx context.Context, i int) (_ *Stage, err error) {
	if s.stages[i] == nil {
		s.stages[i], err = s.dev.NewStage(ctx, StageOptions{ChunkBytes: s.opt.ChunkBytes, Depth: s.opt.Depth})
		if err != nil {
			return nil, err
		}
		s.stages[i].drainAfter = s.opt.StuckAfter
	}
	return s.stages[i], nil
}

func (s *seat) close(ctx context.Context) error {
	err := s.stream.Close(ctx)
	for i, stage := range s.stages {
		if stage != nil {
			err = errors.Join(err, stage.Close(ctx))
			s.stages[i] = nil
		}
	}
	if err != nil {
		return fmt.Errorf("device %d: %w", s.dev.ordinal, err)
	}
	return nil
}
