package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/elastic/reshard"
)

// TestABoxWithinAPart: it is packed from the part that has all of it, and a box of which no part
// has all is refused.
func TestABoxWithinAPart(t *testing.T) {
	tensor := reshard.Tensor{Name: "a", Type: "uint8", Width: 1, Shape: []int{8, 3}}
	rows := func(from, to int) part {
		p := part{tensor: tensor, box: reshard.Box{Offset: []int{from, 0}, Size: []int{to - from, 3}}}
		for i := from * 3; i < to*3; i++ {
			p.memory = append(p.memory, byte(i))
		}
		return p
	}
	has := []part{rows(0, 3), rows(2, 6)}
	var scratch []byte
	for _, c := range []struct {
		box  reshard.Box
		want []byte
	}{
		{reshard.Box{Offset: []int{2, 0}, Size: []int{4, 3}}, rows(2, 6).memory},
		{reshard.Box{Offset: []int{2, 1}, Size: []int{4, 1}}, []byte{7, 10, 13, 16}},
	} {
		if got, err := packed(has, c.box, &scratch); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%v is %v, %v; want %v", c.box, got, err, c.want)
		}
	}
	if _, err := packed(has, reshard.Box{Offset: []int{1, 0}, Size: []int{3, 3}}, &scratch); err == nil {
		t.Error("rows of two parts are sent as one piece")
	}
}

// TestADamagedPartEndsTheGeneration: what does not match its hash is refused, and all members learn
// who has sent it.
func TestADamagedPartEndsTheGeneration(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("the test hangs"))
	defer cancel()
	network := inproc.NewNetwork()
	errs := make([]error, 2)
	var members, heard sync.WaitGroup
	heard.Add(2) // nobody leaves before both have heard
	var endpoints []*collective.Endpoint
	for rank := range errs {
		l, err := network.Listen(fmt.Sprint(rank))
		if err != nil {
			t.Fatal(err)
		}
		e := collective.NewEndpoint(l)
		t.Cleanup(func() { _ = e.Close() })
		endpoints = append(endpoints, e)
	}
	for rank, e := range endpoints {
		members.Go(func() {
			c, err := collective.New(ctx, collective.Options{
				Job: "j", Generation: 1, Rank: rank, World: 2, Endpoint: e,
				Peers: func(_ context.Context, r int) (string, error) { return fmt.Sprint(r), nil },
			})
			if err != nil {
				errs[rank] = err
				heard.Done()
				return
			}
			defer func() {
				heard.Done()
				heard.Wait()
				_ = c.Close()
			}()
			if rank == 0 {
				err = errors.Join(sendHashed(ctx, c, 1, []byte("right")), c.Send(ctx, 1, make([]byte, 16)), c.Send(ctx, 1, []byte("wrong")))
				<-c.Context().Done() // the other one ends it
				errs[rank] = errors.Join(err, c.Failed())
				return
			}
			got := make([]byte, 5)
			if err := recvHashed(ctx, c, 0, got); err != nil || string(got) != "right" {
				t.Errorf("%q, %v", got, err)
			}
			errs[rank] = recvHashed(ctx, c, 0, got)
		})
	}
	members.Wait()
	for rank, err := range errs {
		var lost *collective.PeerLostError
		if !errors.As(err, &lost) || lost.Rank != 0 {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if !errors.Is(errs[1], errCorrupt) {
		t.Errorf("the one who noticed: %v", errs[1])
	}
}
