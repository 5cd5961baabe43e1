package elastic

import "context"

// OnReset has f called at the start of every generation but the first of a job that begins anew: on all members, in the order of the
// registrations, after the state has been brought in sync and before the training function is called. before is the
// place that this worker had in the generation before; a newcomer had none, Generation 0. f may use collectives. Its errors count as those of the
// training function.
//
// What f changes in the state it must compute from the state and the world, so that all members come to the same, also those
// that are called once more because a generation ended before its first commit: rate = base * world, never rate *= world / before.
//
// In Horovod such callbacks run before the sync, and what they change in the state is overwritten by it; and they run on survivors alone, so
// that here a newcomer would differ. Who wants the latter looks at before.
func (s *State) OnReset(f func(ctx context.Context, s *Session, before Place) error) {
	s.resets = append(s.resets, f)
}

// reset calls what wants to know of a new generation.
func (s *Session) reset(ctx context.Context, before Place) error {
	if s.Generation <= 1 && s.state.resumed == nil {
		return nil
	}
	for _, f := range s.state.resets {
		if err := f(ctx, s, before); err != nil {
			return err
		}
	}
	return nil
}
