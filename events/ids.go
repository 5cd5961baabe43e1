package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// NodeID names a machine that runs an agent: lower-case letters, digits and inner hyphens, at most 63
// characters (an RFC 1123 label), so that it is one subject token and one bucket key.
type NodeID string

// JobID names a job: the spec's name, a hyphen, and four hexadecimal digits of a hash over the source and id of
// the event that submitted it. Submitting the same event twice therefore names the same job.
type JobID string

// Incarnation is one life of an agent or of a worker process: a ULID made at each start. It fences ghosts.
type Incarnation string

// Generation is the number of a sealed round of one job, counted from 1. 0 means none. It is printed as g3.
type Generation uint64

// String prints the generation as g3.
func (g Generation) String() string { return fmt.Sprintf("g%d", uint64(g)) }

// Slot is the index of a worker slot on its node, from 0.
type Slot int

// Place is one slot of one node.
type Place struct {
	Node NodeID `json:"node"`
	Slot Slot   `json:"slot"`
}

// String prints the place as node-a/0.
func (p Place) String() string { return fmt.Sprintf("%s/%d", p.Node, p.Slot) }

// Less orders places by node, then slot.
func (p Place) Less(q Place) bool {
	if p.Node != q.Node {
		return p.Node < q.Node
	}
	return p.Slot < q.Slot
}

const maxToken = 63

// CheckToken says why s cannot be one token of a subject (an RFC 1123 label), or returns nil.
// what names the field in the message.
func CheckToken(what, s string) error {
	switch {
	case s == "":
		return Errorf(Invalid, "%s is empty: give 1 to %d of a-z, 0-9 and '-'", what, maxToken)
	case len(s) > maxToken:
		return Errorf(Invalid, "%s %q has %d characters, at most %d are allowed", what, s, len(s), maxToken)
	case s[0] == '-' || s[len(s)-1] == '-':
		return Errorf(Invalid, "%s %q begins or ends with '-'", what, s)
	}
	for i := range len(s) {
		c := s[i]
		if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return Errorf(Invalid, "%s %q contains %q: only a-z, 0-9 and '-' are allowed", what, s, string(c))
		}
	}
	return nil
}

// Check validates the id where it is made.
func (n NodeID) Check() error { return CheckToken("node", string(n)) }

// Check validates the id where it is made.
func (j JobID) Check() error { return CheckToken("job", string(j)) }

// NodeIDFrom makes a node id of a host name: lower case, other characters become '-'.
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
	s = strings.Trim(s[:min(len(s), maxToken)], "-")
	if s == "" {
		s = "node"
	}
	return NodeID(s)
}

// JobIDFrom derives the id of the job that the event (source, id) submits under the given name.
func JobIDFrom(name, source, id string) JobID {
	sum := sha256.Sum256([]byte(source + "\x00" + id))
	return JobID(name + "-" + hex.EncodeToString(sum[:2]))
}

// Token derives a secret-free fencing token from its parts; the same parts give the same token everywhere, so a
// pure machine can make one without randomness of its own.
func Token(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
