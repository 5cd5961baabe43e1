//go:build cgo

package main

import (
	"errors"
	"fmt"
	"sync"
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

// TestAnyRankMaySendIt: receives from any rank get each message once, with the rank that sent it,
// whether they are posted before it comes or after, and beside receives from one rank.
func TestAnyRankMaySendIt(t *testing.T) {
	const world, each = 4, 50
	c := ranks(t, world)
	receive := func() (string, int32) {
		t.Helper()
		into, source := make([]byte, 4), int32(-1)
		r, err := c[0].recvAny(7, into, &source)
		if err == nil {
			err = r.wait(-1)
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(into), source
	}
	var senders sync.WaitGroup
	defer senders.Wait()
	for rank := 1; rank < world; rank++ {
		senders.Go(func() {
			for i := range each {
				if err := c[rank].sendTagged(0, 7, fmt.Appendf(nil, "%d.%02d", rank, i)); err != nil {
					t.Error(err)
				}
			}
			if err := c[rank].sendTagged(0, 8, []byte("last")); err != nil {
				t.Error(err)
			}
		})
	}
	next := map[int32]int{}
	for range each * (world - 1) {
		text, source := receive()
		if want := fmt.Sprintf("%d.%02d", source, next[source]); text != want {
			t.Fatalf("%q from rank %d, want %q", text, source, want)
		}
		next[source]++
	}
	for rank := 1; rank < world; rank++ {
		into := make([]byte, 4)
		r, err := c[0].matchQueue(rank).recv(8, into)
		if err == nil {
			err = r.wait(-1)
		}
		if err != nil || string(into) != "last" {
			t.Errorf("%q, %v from rank %d", into, err, rank)
		}
	}
}

// TestAReceiveOfAnyRankFailsOnce, with the communicator.
func TestAReceiveOfAnyRankFailsOnce(t *testing.T) {
	c := ranks(t, 3)
	var source int32
	r, err := c[0].recvAny(1, make([]byte, 1), &source)
	if err != nil {
		t.Fatal(err)
	}
	c[1].abort(-1, "it was asked for")
	if err := r.wait(-1); err == nil {
		t.Error("no error")
	}
}
