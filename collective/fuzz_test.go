package collective

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/kernel"
)

func FuzzHead(f *testing.F) {
	var b [headLen]byte
	head{kind: frameData, call: call{method: allreduce, dtype: kernel.Float32, count: 9, seq: 3}, length: 36}.put(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) < headLen {
			return
		}
		h, err := parseHead(p)
		if err != nil {
			return
		}
		_ = h.call.String()
		var again [headLen]byte
		h.put(again[:])
		if !bytes.Equal(again[:], p[:headLen]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", p[:headLen], h, again)
		}
	})
}

func FuzzHello(f *testing.F) {
	h := hello{purpose: forRing, order: 1, from: 0, to: 1, world: 2, generation: 7, settings: 1, stall: time.Second, job: "j"}
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

func FuzzVerdict(f *testing.F) {
	for _, err := range []error{
		&PeerLostError{Rank: 1, Cause: ErrSilent}, &PeerLostError{Rank: 1, Cause: ErrLeft}, ErrClosed,
		&PeerLostError{Rank: 0, Cause: errors.New("reset")}, &AbortedError{Rank: 1, Cause: errors.New("no")},
		&DivergedError{Rank: 1, Peer: 0, Mine: "a", Theirs: "b"},
	} {
		f.Add(encodeVerdict(err, 1))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		failure, ok := decodeVerdict(p, 7, 2)
		if !ok {
			return
		}
		again, ok := decodeVerdict(encodeVerdict(failure, 0), 7, 2)
		if !ok || len(p) <= maxControl && again.Error() != failure.Error() {
			t.Fatalf("%v became %v", failure, again)
		}
	})
}
