package collective

import (
	"encoding/binary"
	"errors"
	"strings"
)

// A verdict is why a communicator failed, as it travels in abort frames and in
// refusals: 1 byte of kind, two ranks, text. The second rank of a loss is 1 + its witness, 0 = none.
const (
	verdictLost byte = iota + 1
	verdictLeft
	verdictSilent
	verdictAborted
	verdictDiverged
)

const verdictText = maxControl - 9

// encodeVerdict turns a failure into bytes. rank is the one that speaks.
func encodeVerdict(failure error, rank int) []byte {
	kind, first, second, text := verdictAborted, rank, 0, failure.Error()
	var lost *PeerLostError
	var aborted *AbortedError
	var diverged *DivergedError
	switch {
	case errors.Is(failure, ErrClosed):
		kind, text = verdictLeft, ""
	case errors.As(failure, &lost):
		kind, first, text = verdictLost, lost.Rank, lost.Cause.Error()
		if errors.Is(lost.Cause, ErrLeft) {
			kind = verdictLeft
		} else if errors.Is(lost.Cause, ErrSilent) {
			kind = verdictSilent
		}
		if lost.Witnessed {
			second = 1 + lost.Witness
		}
	case errors.As(failure, &diverged):
		kind, first, second, text = verdictDiverged, diverged.Rank, diverged.Peer, diverged.Mine+"\x00"+diverged.Theirs
	case errors.As(failure, &aborted):
		first, text = aborted.Rank, aborted.Cause.Error()
	}
	if len(text) > verdictText {
		text = strings.ToValidUTF8(text[:verdictText], "")
	}
	b := make([]byte, 9, 9+len(text))
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], uint32(first))
	binary.LittleEndian.PutUint32(b[5:], uint32(second))
	return append(b, text...)
}

// told is the text of a cause that was seen by another rank.
type told string

func (t told) Error() string { return string(t) }

// decodeVerdict is the reverse; the ranks must be below world.
func decodeVerdict(b []byte, generation uint64, world int) (error, bool) {
	if len(b) < 9 {
		return nil, false
	}
	first := int(binary.LittleEndian.Uint32(b[1:]))
	second := int(binary.LittleEndian.Uint32(b[5:]))
	loss := b[0] == verdictLost || b[0] == verdictSilent
	if first >= world || second > world || second == world && !loss {
		return nil, false
	}
	text := string(b[9:])
	switch b[0] {
	case verdictLost:
		return &PeerLostError{Rank: first, Generation: generation, Cause: told(text), Witness: max(second-1, 0), Witnessed: second > 0}, true
	case verdictLeft:
		return &PeerLostError{Rank: first, Generation: generation, Cause: ErrLeft}, true
	case verdictSilent:
		return &PeerLostError{Rank: first, Generation: generation, Cause: ErrSilent, Witness: max(second-1, 0), Witnessed: second > 0}, true
	case verdictAborted:
		return &AbortedError{Rank: first, Generation: generation, Cause: told(text)}, true
	case verdictDiverged:
		mine, theirs, _ := strings.Cut(text, "\x00")
		return &DivergedError{Rank: first, Peer: second, Generation: generation, Mine: mine, Theirs: theirs}, true
	}
	return nil, false
}
