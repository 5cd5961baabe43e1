package prologue

import (
	"errors"
	"testing"
)

// TestADamagedPrologueIsRefused, whatever is damaged.
func TestADamagedPrologueIsRefused(t *testing.T) {
	p := &Log{}
	if err := errors.Join(p.Add([]byte("one")), p.Add(nil), p.Add([]byte("three"))); err != nil {
		t.Fatal(err)
	}
	whole := p.Encode(0)
	for n := range whole {
		q := &Log{}
		if err := q.Extend(0, whole[:n]); err == nil && q.Len() == 3 {
			t.Errorf("%d of %d bytes are taken for the whole", n, len(whole))
		}
	}
	q := &Log{}
	if err := errors.Join(q.Add([]byte("mine")), q.Extend(0, whole)); err != nil {
		t.Fatal(err)
	}
	if b, _ := q.At(0); string(b) != "mine" || q.Len() != 3 {
		t.Errorf("what was here is written over: %q of %d", b, q.Len())
	}
}
