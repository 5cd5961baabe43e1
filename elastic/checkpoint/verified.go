package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// suffixVerified is that of an empty file beside a checkpoint that is verified.
const suffixVerified = ".verified"

// suspects are checkpoints with wrong results: those after one commit, up to another.
type suspects struct{ after, until Name }

func (s suspects) has(n Name) bool {
	n.Run = 0
	return n.Compare(s.after) > 0 && n.Compare(s.until) <= 0
}

// Verified reports whether the ranks that made a checkpoint have found out since that none of them
// had computed wrongly before it.
func (d *Dir) Verified(n Name) bool {
	_, err := os.Stat(d.Path(n) + suffixVerified)
	return err == nil
}

// MarkVerified says that all commits up to one are right: its run is of no account. It marks their
// checkpoints, if this Dir has written one of the same run.
func (d *Dir) MarkVerified(until Name) error {
	err := d.eachWritten(func(n Name) error {
		until.Run = n.Run
		if n.Compare(until) > 0 || d.Verified(n) {
			return nil
		}
		path := d.Path(n) + suffixVerified
		if err := d.fault("mark", path); err != nil {
			return err
		}
		return os.WriteFile(path, nil, 0o600)
	})
	if err != nil {
		return fmt.Errorf("mark checkpoints as verified: %w", err)
	}
	return nil
}

// Distrust says that wrong results may be in the commits after one, up to another: their runs are
// of no account. It removes their checkpoints, if this Dir has written one of the same run, or else
// when it writes one. A checkpoint of them that is being written is given up.
func (d *Dir) Distrust(after, until Name) error {
	after.Run, until.Run = 0, 0
	d.mu.Lock()
	d.suspects = append(d.suspects, suspects{after, until})
	d.mu.Unlock()
	if err := d.removeSuspects(); err != nil {
		return fmt.Errorf("remove checkpoints with wrong results: %w", err)
	}
	return nil
}

func (d *Dir) removeSuspects() error {
	return d.eachWritten(func(n Name) error {
		if !d.isSuspect(n) {
			return nil
		}
		return d.drop(n)
	})
}

func (d *Dir) isSuspect(n Name) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.suspects, func(s suspects) bool { return s.has(n) })
}

// eachWritten calls f for each checkpoint of the run of which this Dir has written one.
func (d *Dir) eachWritten(f func(Name) error) error {
	d.mu.Lock()
	run := d.run
	d.mu.Unlock()
	if run == 0 {
		return nil
	}
	all, err := d.List()
	for _, n := range all {
		if n.Run == run {
			err = errors.Join(err, f(n))
		}
	}
	return err
}

// byWorth sorts checkpoints that are older than one which is kept: those that are verified come
// first. Both kinds stay in their order.
func (d *Dir) byWorth(older []Name) []Name {
	verified := map[Name]bool{}
	for _, n := range older {
		verified[n] = d.Verified(n)
	}
	sorted := slices.Clone(older)
	slices.SortStableFunc(sorted, func(a, b Name) int {
		switch {
		case verified[a] == verified[b]:
			return 0
		case verified[a]:
			return -1
		}
		return 1
	})
	return sorted
}

// drop removes a checkpoint's file. The mark goes first: another checkpoint could get its name.
func (d *Dir) drop(n Name) error {
	if d.Verified(n) {
		if err := d.remove(d.Path(n) + suffixVerified); err != nil {
			return err
		}
	}
	return d.remove(d.Path(n))
}
