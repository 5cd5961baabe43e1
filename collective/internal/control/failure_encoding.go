package control

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// An encoded failure is why a session failed, as it travels in abort frames and in refusals: 1 byte
// of kind, two ranks, text. The second rank of a loss is 1 + its witness; 0 = none.
const (
	failureLost byte = iota + 1
	failureLeft
	failureSilent
	failureAborted
	failureDiverged
)

const maxFailureText = frame.MaxControl - 9

// encodeFailure encodes a failure. rank is the sender.
func encodeFailure(failure error, rank int) []byte {
	kind, first, second, text := failureAborted, rank, 0, failure.Error()
	var lost *PeerLostError
	var aborted *AbortedError
	var diverged *DivergedError
	switch {
	case errors.Is(failure, ErrClosed):
		kind, text = failureLeft, ""
	case errors.As(failure, &aborted):
		// also if its cause is the loss of a rank of another communicator
		first, text = aborted.Rank, aborted.Cause.Error()
	case errors.As(failure, &lost):
		kind, first, text = failureLost, lost.Rank, lost.Cause.Error()
		if errors.Is(lost.Cause, ErrLeft) {
			kind = failureLeft
		} else if errors.Is(lost.Cause, ErrSilent) {
			kind = failureSilent
		}
		if lost.Witnessed {
			second = 1 + lost.Witness
		}
	case errors.As(failure, &diverged):
		kind, first, second, text = failureDiverged, diverged.Rank, diverged.Peer, diverged.Mine+"\x00"+diverged.Theirs
	}
	if len(text) > maxFailureText {
		text = strings.ToValidUTF8(text[:maxFailureText], "")
	}
	b := make([]byte, 9, 9+len(text))
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], uint32(first))
	binary.LittleEndian.PutUint32(b[5:], uint32(second))
	return append(b, text...)
}

// remoteCause is the text of a cause that another rank has observed.
type remoteCause string

func (c remoteCause) Error() string { return string(c) }

// decodeFailure decodes what encodeFailure has made, with causes as texts. The ranks must be below
// world; of a loss the second is 1 + the rank that observed it, or 0.
func decodeFailure(b []byte, generation uint64, world int) (error, bool) {
	if len(b) < 9 {
		return nil, false
	}
	first := int(binary.LittleEndian.Uint32(b[1:]))
	second := int(binary.LittleEndian.Uint32(b[5:]))
	loss := b[0] == failureLost || b[0] == failureSilent
	if first >= world || second > world || second == world && !loss {
		return nil, false
	}
	text := string(b[9:])
	switch b[0] {
	case failureLost:
		return &PeerLostError{Rank: first, Generation: generation, Cause: remoteCause(text), Witness: max(second-1, 0), Witnessed: second > 0}, true
	case failureLeft:
		return &PeerLostError{Rank: first, Generation: generation, Cause: ErrLeft}, true
	case failureSilent:
		return &PeerLostError{Rank: first, Generation: generation, Cause: ErrSilent, Witness: max(second-1, 0), Witnessed: second > 0}, true
	case failureAborted:
		return &AbortedError{Rank: first, Generation: generation, Cause: remoteCause(text)}, true
	case failureDiverged:
		mine, theirs, _ := strings.Cut(text, "\x00")
		return &DivergedError{Rank: first, Peer: second, Generation: generation, Mine: mine, Theirs: theirs}, true
	}
	return nil, false
}
