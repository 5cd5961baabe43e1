// Package ident defines the identifiers of nodes, jobs, workers and generations, and how they are
// derived.
package ident

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// NodeID names a machine that runs an agent: lower-case letters, digits and inner hyphens, at most
// 63 characters (an RFC 1123 label), so that it is one subject token and one bucket key.
type NodeID string

// JobID names a job: the spec's name, a hyphen, and four hexadecimal digits of a hash over the
// source and id of the event that submitted it, or more digits if another event has that id
// already; see JobIDs.
type JobID string

// Incarnation is a ULID that identifies one run of an agent or a worker and fences earlier ones.
type Incarnation string

// Generation is the number of a sealed round of one job, from 1; 0 = none. It is printed as g3.
type Generation uint64

// String returns the generation as g3.
func (g Generation) String() string { return fmt.Sprintf("g%d", uint64(g)) }

// Slot is the index of a worker slot on its node, from 0.
type Slot int

// Rank is the rank of a worker in a generation, or NoRank. In JSON that is null.
type Rank int

// NoRank is the rank of a worker that is in no generation, and of what is about no worker.
const NoRank Rank = -1

// MarshalJSON implements json.Marshaler.
func (r Rank) MarshalJSON() ([]byte, error) {
	if r < 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(r), 10), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rank) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*r = NoRank
		return nil
	}
	return json.Unmarshal(text, (*int)(r))
}

// Place is one slot of one node.
type Place struct {
	Node NodeID `json:"node"`
	Slot Slot   `json:"slot"`
}

// String returns the place as node-a/0.
func (p Place) String() string { return fmt.Sprintf("%s/%d", p.Node, p.Slot) }

// Compare orders places by node, then slot.
func (p Place) Compare(q Place) int {
	return cmp.Or(strings.Compare(string(p.Node), string(q.Node)), cmp.Compare(p.Slot, q.Slot))
}

// Check validates the id.
func (n NodeID) Check() error { return invalid(spec.CheckLabel("node", string(n))) }

// Check validates the id.
func (j JobID) Check() error { return invalid(spec.CheckLabel("job", string(j))) }

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return errcode.Errorf(errcode.Invalid, "%w", err)
}

// NodeIDFrom derives a node id from a host name: lower case, other characters become '-'.
func NodeIDFrom(host string) NodeID {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, host)
	s = strings.Trim(s[:min(len(s), spec.MaxLabel)], "-")
	if s == "" {
		s = "node"
	}
	return NodeID(s)
}

// jobDigits are the possible numbers of hexadecimal digits in a job's id: the lowest that makes it
// unique. The last is all of Origin, which no two events share.
var jobDigits = [...]int{4, 8, 16, 32}

// JobIDs returns the ids that the job of the event (source, id) may have under the given name, in
// order of preference: the registry uses the first that no other event's job has. The name is
// truncated if it and the digits are too long.
func JobIDs(name, source, id string) []JobID { return JobIDsOf(name, Origin(source, id)) }

// JobIDsOf is JobIDs of the event with an Origin.
func JobIDsOf(name, origin string) []JobID {
	ids := make([]JobID, len(jobDigits))
	for i, n := range jobDigits {
		head := strings.TrimRight(name[:min(len(name), spec.MaxLabel-1-n)], "-")
		ids[i] = JobID(head + "-" + origin[:n])
	}
	return ids
}

// JobIDFrom returns the first of JobIDs, which the job has unless another event's job has it.
func JobIDFrom(name, source, id string) JobID { return JobIDs(name, source, id)[0] }

// Origin identifies an event, and thereby the job that it submits: CloudEvents with equal source
// and id are the same.
func Origin(source, id string) string { return Token(source, id) }

// Token derives a fencing token from its parts, without a secret. The same parts give the same
// token everywhere, so that a pure machine needs no randomness for it.
func Token(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
