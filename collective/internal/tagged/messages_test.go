package tagged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
)

// ranks connects ranks within this process.
func ranks(t *testing.T, world int) []*Messages {
	t.Helper()
	network := inproc.NewNetwork()
	ends, made, errs := make([]*collective.Endpoint, world), make([]*Messages, world), make([]error, world)
	for r := range ends {
		l, err := network.Listen(fmt.Sprint("rank ", r))
		if err != nil {
			t.Fatal(err)
		}
		ends[r] = collective.NewEndpoint(l)
		t.Cleanup(func() { _ = ends[r].Close() })
	}
	var connecting sync.WaitGroup
	for r := range made {
		connecting.Go(func() {
			c, err := collective.New(t.Context(), collective.Options{
				Job: "test", Generation: 1, Rank: r, World: world, Endpoint: ends[r],
				Peers: func(_ context.Context, rank int) (string, error) { return ends[rank].Addr(), nil },
			})
			made[r], errs[r] = New(c), err
		})
	}
	connecting.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for _, m := range made {
			closing.Go(func() { _ = m.c.Close() })
		}
		closing.Wait()
	})
	return made
}

// receive posts a receive, and returns the channel that announces its end.
func (m *Messages) receive(from int, tag int64, into []byte) <-chan error {
	end := make(chan error, 1)
	m.Recv(from, tag, into, func(err error) { end <- err })
	return end
}

func (m *Messages) receiveAny(tag int64, into []byte, source *int32) <-chan error {
	end := make(chan error, 1)
	m.RecvAny(tag, into, source, func(err error) { end <- err })
	return end
}

// TestTagsSortMessages: a receiver gets the message with its tag, whatever came before it.
func TestTagsSortMessages(t *testing.T) {
	p := ranks(t, 2)
	for _, m := range []struct {
		tag  int64
		text string
	}{{1, "one"}, {2, "two"}, {1, "another one"}, {3, ""}} {
		if err := p[0].Send(1, m.tag, []byte(m.text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct {
		tag  int64
		text string
	}{{3, ""}, {2, "two"}, {1, "one"}, {1, "another one"}} {
		into := make([]byte, len(m.text))
		err := <-p[1].receive(0, m.tag, into)
		if err != nil || string(into) != m.text {
			t.Errorf("tag %d: %q, %v, want %q", m.tag, into, err, m.text)
		}
	}
}

// TestAMessageOfAnotherLength fails the receiver only.
func TestAMessageOfAnotherLength(t *testing.T) {
	p := ranks(t, 2)
	short := p[1].receive(0, 7, make([]byte, 2))
	for _, text := range []string{"four", "next"} {
		if err := p[0].Send(1, 7, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-short; !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	into := make([]byte, 4)
	err := <-p[1].receive(0, 7, into)
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
		err := <-c[0].receiveAny(7, into, &source)
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
				if err := c[rank].Send(0, 7, fmt.Appendf(nil, "%d.%02d", rank, i)); err != nil {
					t.Error(err)
				}
			}
			if err := c[rank].Send(0, 8, []byte("last")); err != nil {
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
		err := <-c[0].receive(rank, 8, into)
		if err != nil || string(into) != "last" {
			t.Errorf("%q, %v from rank %d", into, err, rank)
		}
	}
}

// TestAReceiveOfAnyRankFailsOnce, with the communicator.
func TestAReceiveOfAnyRankFailsOnce(t *testing.T) {
	c := ranks(t, 3)
	var source int32
	end := c[0].receiveAny(1, make([]byte, 1), &source)
	c[1].c.Abort(errors.New("it was asked for"))
	if err := <-end; err == nil {
		t.Error("no error")
	}
}
