// Package members connects a worker with the members of a generation, and with the spares that give
// them what they have of the state while it begins.
package members

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/collective"
)

// Connections are a worker's in one generation.
type Connections struct {
	Program *collective.Communicator // of the members; nil = this worker is a spare
	All     *collective.Communicator // of the members and the spares, whose ranks follow; Program if there are none
}

// Connect connects a worker. Its rank is one of the members' World, or of a spare. Each
// communicator is attached once it is there. What Connect returns must be closed, also if there is
// an error.
func Connect(ctx context.Context, o collective.Options, spares int, attach func(*collective.Communicator)) (*Connections, error) {
	m := &Connections{}
	var err error
	if o.Rank < o.World {
		if m.Program, err = collective.New(ctx, o); err != nil {
			return m, err
		}
		attach(m.Program)
	}
	if m.All = m.Program; spares == 0 {
		return m, nil
	}
	// Ranks of one machine need not follow each other here.
	o.Job, o.World, o.LocalRank, o.LocalSize = o.Job+"/with spares", o.World+spares, 0, 0
	if failed := o.OnFailure; failed != nil {
		o.OnFailure = func(err error) {
			if !errors.Is(err, collective.ErrLeft) { // another has left it earlier
				failed(err)
			}
		}
	}
	if m.All, err = collective.New(ctx, o); err == nil {
		attach(m.All)
	}
	return m, err
}

// LeaveSpares ends what members and spares do together: the members have the state.
func (m *Connections) LeaveSpares(ctx context.Context) error {
	if m.All == m.Program {
		return nil
	}
	if err := m.All.Barrier(ctx); err != nil {
		return err
	}
	_ = m.All.Close() // always nil
	m.All = m.Program
	return nil
}

// Abort ends the generation on all ranks.
func (m *Connections) Abort(cause error) {
	for _, c := range m.open() {
		c.Abort(cause)
	}
}

// Close takes a moment if a peer is stuck.
func (m *Connections) Close() {
	for _, c := range m.open() {
		_ = c.Close() // always nil
	}
	m.Program, m.All = nil, nil
}

func (m *Connections) open() (all []*collective.Communicator) {
	if m.Program != nil {
		all = append(all, m.Program)
	}
	if m.All != nil && m.All != m.Program {
		all = append(all, m.All)
	}
	return all
}
