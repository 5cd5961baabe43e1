package control

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

func FuzzHello(f *testing.F) {
	h := hello{purpose: PurposeControl, order: 1, from: 0, to: 1, world: 2, generation: 7, settings: 1, stall: time.Second, job: "j"}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		h, err := parseHello(p)
		if err == nil && !bytes.Equal(h.encode(), p) {
			t.Fatalf("%x decodes to %+v", p, h)
		}
		_, _, _, _ = readHello(bytes.NewReader(p))
		_, _ = readGreeting(bytes.NewReader(p))
		_, _, _ = readReply(bytes.NewReader(p), "t", nil)
	})
}

func FuzzFailure(f *testing.F) {
	for _, err := range []error{
		&PeerLostError{Rank: 1, Cause: ErrSilent}, &PeerLostError{Rank: 1, Cause: ErrLeft}, ErrClosed,
		&PeerLostError{Rank: 0, Cause: errors.New("reset")}, &AbortedError{Rank: 1, Cause: errors.New("no")},
		&DivergedError{Rank: 1, Peer: 0, Mine: "a", Theirs: "b"},
	} {
		f.Add(encodeFailure(err, 1))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		failure, ok := decodeFailure(p, 7, 2)
		if !ok {
			return
		}
		again, ok := decodeFailure(encodeFailure(failure, 0), 7, 2)
		if !ok || len(p) <= frame.MaxControl && again.Error() != failure.Error() {
			t.Fatalf("%v became %v", failure, again)
		}
	})
}

// TestAnAbortWithAForeignLossIsAnAbort: a subgroup aborts when the whole loses a rank that is not
// in the subgroup, whose number means nothing there.
func TestAnAbortWithAForeignLossIsAnAbort(t *testing.T) {
	failure := &AbortedError{Rank: 1, Generation: 7, Cause: &PeerLostError{Rank: 2, Generation: 7, Cause: ErrSilent}}
	got, ok := decodeFailure(encodeFailure(failure, 1), 7, 2)
	var aborted *AbortedError
	if !ok || !errors.As(got, &aborted) || aborted.Rank != 1 {
		t.Fatalf("%v became %v, %t", failure, got, ok)
	}
}
