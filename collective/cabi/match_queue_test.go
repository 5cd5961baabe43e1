//go:build cgo

package main

import (
	"errors"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

// TestTagsSortMessages: a receiver gets the message with its tag, whatever came before it.
func TestTagsSortMessages(t *testing.T) {
	p := pair(t)
	for _, m := range []struct {
		tag  int64
		text string
	}{{1, "one"}, {2, "two"}, {1, "another one"}, {3, ""}} {
		var id uint64
		if err := p[0].do(p[0].sendQueue(1), &id, func() error { return p[0].sendTagged(1, m.tag, []byte(m.text)) }); err != nil {
			t.Fatal(err)
		}
		if err := p[0].waitFor(t, id); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct {
		tag  int64
		text string
	}{{3, ""}, {2, "two"}, {1, "one"}, {1, "another one"}} {
		into := make([]byte, len(m.text))
		r, err := p[1].matchQueue(0).recv(m.tag, into)
		if err == nil {
			err = r.wait(-1)
		}
		if err != nil || string(into) != m.text {
			t.Errorf("tag %d: %q, %v, want %q", m.tag, into, err, m.text)
		}
	}
}

// TestAMessageOfAnotherLength fails the receiver only.
func TestAMessageOfAnotherLength(t *testing.T) {
	p := pair(t)
	short, err := p[1].matchQueue(0).recv(7, make([]byte, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"four", "next"} {
		if err := p[0].sendTagged(1, 7, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := short.wait(-1); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	into := make([]byte, 4)
	r, err := p[1].matchQueue(0).recv(7, into)
	if err == nil {
		err = r.wait(-1)
	}
	if err != nil || string(into) != "next" {
		t.Errorf("%q, %v, want the message behind it", into, err)
	}
}
