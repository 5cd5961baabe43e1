package reproducible

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/internal/errorreport"
)

// maxTensors is how many hashes there may be in a report.
const maxTensors = 256

// ErrCorrupt is the error of a rank whose state, or result, is another one than that of most ranks.
// In a job of Regroup it is the cause of the incident, and the slot of the worker is in quarantine.
var ErrCorrupt = errors.New("silent corruption")

// corrupt returns an ErrCorrupt, and leaves it for the agent to read when the worker has ended.
func corrupt(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	err := fmt.Errorf("reproducible: %w: %s", ErrCorrupt, text)
	return errors.Join(err, errorreport.Raised("reproducible.SilentCorruptionError", text))
}

// undecided returns the error of all ranks where no majority says who is right, when all know it:
// one that took the end of another for a loss would go on alone.
func undecided(ctx context.Context, s *elastic.Session, what string) error {
	_ = s.Comm().Barrier(ctx) // one that has left knows it
	return fmt.Errorf("reproducible: the ranks disagree on %s, and no majority says who is right", what)
}

// CheckState compares the state of the training on all ranks, reports its hash to the job, and
// returns it: 32 hexadecimal digits, the same for equal tensors with equal names. The job shows it,
// and `regroup verify` compares it with that of another job. All ranks call it after the same step:
// every so many steps, a few hundred times in a training at most, and at the end.
//
// A rank whose state is another one than that of most ranks gets ErrCorrupt, and must leave; the
// others go on. Where there is no majority all get an error.
func CheckState(ctx context.Context, s *elastic.Session, tensors map[string][]float32) (hash string, err error) {
	if len(tensors) == 0 || len(tensors) > maxTensors {
		return "", fmt.Errorf("reproducible: %d tensors, want 1 to %d", len(tensors), maxTensors)
	}
	hash, each := hashOf(tensors)
	all, err := s.Comm().AllgatherBlobs(ctx, []byte(hash))
	if err != nil {
		return "", err
	}
	hashes := make([]string, len(all))
	for r, h := range all {
		hashes[r] = string(h)
	}
	switch right, ok := majority(hashes); {
	case !ok:
		return "", undecided(ctx, s, fmt.Sprintf("the state after step %d", s.Step()))
	case hash != right:
		others := 0
		for _, h := range hashes {
			if h == right {
				others++
			}
		}
		return "", corrupt("rank %d has another state after step %d than %d others", s.Rank, s.Step(), others)
	}
	if s.Rank == 0 {
		s.ReportHash(ctx, hash, each)
	}
	return hash, nil
}

// hashOf returns the hash of tensors, and that of each.
func hashOf(tensors map[string][]float32) (hash string, each map[string]string) {
	each = map[string]string{}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		each[name] = digest(bytesOf(tensors[name]))[:16]
		lines = append(lines, name+" "+each[name])
	}
	return digest([]byte(strings.Join(lines, "\n")))[:32], each
}

func digest(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
