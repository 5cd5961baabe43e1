package workerprotocol

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events/limits"
)

const (
	maxCheckpoint = 1 << 50             // bytes
	maxSpan       = 24 * 60 * 60 * 1000 // milliseconds
)

// Check returns an error if a limit is exceeded.
func (r JoinRequest) Check() error {
	return cmp.Or(
		within(limits.Word, "address", len(r.Address)), within(limits.Workers, "accused", len(r.Accused)),
		within(limits.Workers, "broken", len(r.Broken)), r.Commit.check("commit"),
	)
}

// Check returns an error if a limit is exceeded.
func (r Report) Check() error {
	if r.First != nil && r.First.Checkpoint != nil {
		if err := r.First.Checkpoint.check("first.checkpoint"); err != nil {
			return err
		}
	}
	return checkMetrics(r.Metrics)
}

// Check returns an error if a limit is exceeded.
func (r CommitReport) Check() error {
	err := r.Commit.check("commit")
	if x := r.Redundancy; x != nil {
		err = cmp.Or(err, x.Commit.check("redundancy.commit"))
		if x.Checkpoint != nil {
			err = cmp.Or(err, x.Checkpoint.check("redundancy.checkpoint"))
		}
	}
	return err
}

// Check returns an error if a limit is exceeded.
func (r DoneReport) Check() error { return checkMetrics(r.Metrics) }

// Check returns an error if a field has not a value that it may have.
func (r SpanReport) Check() error {
	switch {
	case r.Name != SpanGroupEnds && r.Name != SpanGroupConnects:
		return fmt.Errorf("name: must be %q or %q", SpanGroupEnds, SpanGroupConnects)
	case !(r.AgeMS >= 0 && r.AgeMS <= maxSpan):
		return fmt.Errorf("age_ms: %g is not within 0 to %g", r.AgeMS, float64(maxSpan))
	case !(r.MS >= 0 && r.MS <= r.AgeMS):
		return fmt.Errorf("ms: %g is not within 0 and age_ms, %g", r.MS, r.AgeMS)
	}
	return nil
}

// Check returns an error if a limit is exceeded.
func (r HashReport) Check() error {
	err := cmp.Or(within(limits.Word, "hash", len(r.Hash)), within(limits.Names, "tensors", len(r.Tensors)), within(limits.Epochs, "dealt", len(r.Dealt)))
	if r.Hash == "" {
		err = errors.New("hash: must not be empty")
	}
	for name, hash := range r.Tensors {
		err = cmp.Or(err, within(limits.Word, "the name of a tensor", len(name)), within(limits.Word, "the hash of a tensor", len(hash)))
	}
	for _, d := range r.Dealt {
		err = cmp.Or(err, within(limits.Workers, "dealt.ranks", len(d.Ranks)))
	}
	return err
}

// Check returns an error if a limit is exceeded.
func (r CheckpointRequest) Check() error {
	if r.Bytes < 1 || r.Bytes > maxCheckpoint {
		return fmt.Errorf("bytes: %d is not within 1 to %d", r.Bytes, int64(maxCheckpoint))
	}
	return nil
}

// Check returns an error if a field has not the form that it must have.
func (r SubmitEnvironment) Check() error {
	if len(r.Origin) != 32 || strings.Trim(r.Origin, "0123456789abcdef") != "" {
		return errors.New("origin: must be 32 hexadecimal digits")
	}
	if r.Dir != "" && r.Dir[0] != '/' {
		return errors.New("dir: must be absolute")
	}
	for _, v := range r.Variables {
		if bytes.IndexByte(v, '=') < 1 || bytes.IndexByte(v, 0) >= 0 {
			return errors.New("variables: each must be NAME=VALUE, without a NUL character")
		}
	}
	return nil
}

func (c Commit) check(path string) error { return within(limits.Word, path+".hash", len(c.Hash)) }

func checkMetrics(m map[string]float64) error {
	err := within(limits.Names, "metrics", len(m))
	for name := range m {
		err = cmp.Or(err, within(limits.Word, "the name of a metric", len(name)))
	}
	return err
}

// within returns an error unless a field is within a limit.
func within(l limits.Limit, path string, have int) error {
	if have <= l.Max {
		return nil
	}
	return fmt.Errorf("%s has %d %s, at most %d are allowed (limit %s)", path, have, l.Unit, l.Max, l.Name)
}
