package workerprotocol

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Limits on what a worker may send; docs/limits.md has them by these names.
const (
	MaxNames = 256     // names: metrics of one report
	MaxWord  = 256     // word: bytes of an address, a hash or the name of a metric
	MaxRanks = 100_000 // workers: ranks in one list

	maxCheckpoint = 1 << 50 // bytes
)

// Check returns an error if a limit is exceeded.
func (r JoinRequest) Check() error {
	switch {
	case len(r.Address) > MaxWord:
		return over("address", len(r.Address), MaxWord, "bytes", "word")
	case len(r.Accused) > MaxRanks:
		return over("accused", len(r.Accused), MaxRanks, "entries", "workers")
	case len(r.Broken) > MaxRanks:
		return over("broken", len(r.Broken), MaxRanks, "entries", "workers")
	}
	return r.Commit.check("commit")
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
func (r CommitReport) Check() error { return r.Commit.check("commit") }

// Check returns an error if a limit is exceeded.
func (r DoneReport) Check() error { return checkMetrics(r.Metrics) }

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

func (c Commit) check(path string) error {
	if len(c.Hash) > MaxWord {
		return over(path+".hash", len(c.Hash), MaxWord, "bytes", "word")
	}
	return nil
}

func checkMetrics(m map[string]float64) error {
	if len(m) > MaxNames {
		return over("metrics", len(m), MaxNames, "entries", "names")
	}
	for name := range m {
		if len(name) > MaxWord {
			return over("the name of a metric", len(name), MaxWord, "bytes", "word")
		}
	}
	return nil
}

func over(path string, have, most int, unit, limit string) error {
	return fmt.Errorf("%s has %d %s, at most %d are allowed (limit %s)", path, have, unit, most, limit)
}
