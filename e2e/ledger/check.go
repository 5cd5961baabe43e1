// Package ledger proves from a job's ledger which samples were trained on. It implements
// docs/samples.md independently: it shares no code with what it checks.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strconv"
)

// Ledger is the ledger of docs/samples.md.
type Ledger struct {
	Samples uint64  `json:"samples"`
	Epochs  []Epoch `json:"epochs"`
}

// Epoch is the ledger of one epoch.
type Epoch struct {
	Epoch uint64 `json:"epoch"`
	Count uint64 `json:"count"`
	Sum   string `json:"sum"`
	Done  bool   `json:"done"`
}

// Account is the result of a check.
type Account struct {
	Epochs   int    // done
	Samples  uint64 // in all epochs
	Missing  uint64 // at least, of epochs that are done
	Repeated uint64 // at least
}

// Read reads the ledger of a job from the output of `regroup status JOB -o json`, or a ledger
// alone.
func Read(r io.Reader) (l Ledger, err error) {
	of := struct {
		*Ledger
		Job *Ledger `json:"ledger"`
	}{&l, &l}
	if err = json.NewDecoder(r).Decode(&of); err != nil {
		return l, fmt.Errorf("ledger: %w", err)
	}
	return l, nil
}

// Check proves or refutes a ledger. seed is the seed of the order, if the job has a Sampler: then
// the current epoch is checked too; nil = unknown. The error describes the first contradiction.
func (l Ledger) Check(seed *uint64) (a Account, err error) {
	if l.Samples == 0 {
		return a, errors.New("the program keeps no ledger")
	}
	var whole uint64
	for i := range l.Samples {
		whole += mix(i)
	}
	seen := map[uint64]bool{}
	var wrong []error
	for _, e := range l.Epochs {
		a.Samples += e.Count
		sum, err := strconv.ParseUint(e.Sum, 10, 64)
		if err != nil {
			return a, fmt.Errorf("epoch %d: sum %q is no number", e.Epoch, e.Sum)
		}
		if seen[e.Epoch] {
			a.Repeated += e.Count
			wrong = append(wrong, fmt.Errorf("epoch %d is there twice", e.Epoch))
			continue
		}
		seen[e.Epoch] = true
		if e.Done {
			a.Epochs++
		}
		switch {
		case e.Count > l.Samples:
			a.Repeated += e.Count - l.Samples
			wrong = append(wrong, fmt.Errorf("epoch %d: %d samples are repeated", e.Epoch, e.Count-l.Samples))
		case e.Done && e.Count < l.Samples:
			a.Missing += l.Samples - e.Count
			wrong = append(wrong, fmt.Errorf("epoch %d: %d samples are missing", e.Epoch, l.Samples-e.Count))
		case e.Count == l.Samples && sum != whole:
			a.Missing++
			a.Repeated++
			wrong = append(wrong, fmt.Errorf("epoch %d: the count is right and the sum is not", e.Epoch))
		case e.Count < l.Samples && seed != nil:
			var first uint64
			for _, i := range Order(*seed, e.Epoch, l.Samples, e.Count) {
				first += mix(i)
			}
			if sum != first {
				a.Missing++
				a.Repeated++
				wrong = append(wrong, fmt.Errorf("epoch %d: these are not the first %d samples of its order", e.Epoch, e.Count))
			}
		}
	}
	return a, errors.Join(wrong...)
}

// mix is the hash of docs/samples.md.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Order returns which sample is at each of the first places of an epoch.
func Order(seed, epoch, samples, places uint64) []uint64 {
	half := 1
	if samples > 1 {
		half = max(1, (bits.Len64(samples-1)+1)/2)
	}
	low := uint64(1)<<half - 1
	keys := []uint64{mix(mix(mix(seed) ^ epoch))}
	for len(keys) < 6 {
		keys = append(keys, mix(keys[len(keys)-1]))
	}
	order := make([]uint64, 0, places)
	for x := range places {
		for at := x; ; {
			l, r := at>>half, at&low
			for _, k := range keys {
				l, r = r, l^mix(r^k)&low
			}
			if at = l<<half + r; at < samples {
				order = append(order, at)
				break
			}
		}
	}
	return order
}
