package elastic

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// disk is where a state comes from if no member holds a commit.
type disk struct {
	folder *checkpoint.Folder
	log    *slog.Logger
	names  []checkpoint.Name // that were not tried, the newest first
	loaded *checkpoint.Name  // what is held is this one; nil = what is held is a start
}

// lookIn has the state begin with what is in a folder, if nobody holds a commit. It reads names only.
func (s *State) lookIn(f *checkpoint.Folder, log *slog.Logger) error {
	names, err := f.List()
	if err != nil {
		return err
	}
	s.disk = &disk{folder: f, log: log, names: names}
	if len(names) > 0 { // also if none of them is any good: what this job writes is newer
		s.life = names[0].Life + 1
	}
	return nil
}

// from names the checkpoint that the generation has begun with; nil = none.
func (s *State) from() *wire.Commit {
	if s.resumed == nil {
		return nil
	}
	return &wire.Commit{Generation: s.resumed.Generation, Step: s.resumed.Step}
}

// offer is what this member brings.
func (s *State) offer() offer {
	o := offer{metaBytes: uint64(len(s.held.meta)), hash: s.name(), layout: s.layout()}
	switch d := s.disk; {
	case !s.held.tentative:
		o.standing, o.name.Generation, o.name.Step = committed, s.held.generation, s.held.step
	case d != nil && d.loaded != nil:
		o.standing, o.name = loaded, *d.loaded
	case d != nil && len(d.names) > 0:
		o.standing, o.name, o.hash = stored, d.names[0], digest{}
	}
	return o
}

// resume reads the newest checkpoint that was not tried. If it is damaged, the next one is offered. One of another program is an
// error: who gives the wrong folder does not want to begin anew in it.
func (s *State) resume() error {
	d := s.disk
	n := d.names[0]
	d.names = d.names[1:]
	to := s.blank()
	b, err := d.folder.Read(n, s.layout().String(), to.data)
	switch {
	case errors.Is(err, checkpoint.ErrOther):
		return fmt.Errorf("%w: give another folder for this program's checkpoints", err)
	case err != nil:
		d.log.Warn("a checkpoint is left aside", "checkpoint", n, "err", err)
		return nil
	}
	m, err := decodeMeta(b)
	if err == nil {
		m.Life, m.Sizes = n.Life+1, nil
		to.meta, err = m.encode()
	}
	if err != nil {
		return fmt.Errorf("checkpoint %v: %w", n, err)
	}
	to.forget()
	to.generation, to.step, to.tentative = 0, m.Step, true
	s.adopt(to)
	d.loaded = &n
	return nil
}
