//go:build cgo

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
)

// folder is for what tests build.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "cabi"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(folder)
		os.Exit(code)
	}))
}

// pair connects two ranks within this process.
func pair(t *testing.T) [2]*communicator { return [2]*communicator(ranks(t, 2)) }

// ranks connects ranks within this process.
func ranks(t *testing.T, world int) []*communicator {
	t.Helper()
	network := inproc.NewNetwork()
	ends := make([]*collective.Endpoint, world)
	for r := range ends {
		l, err := network.Listen(fmt.Sprint("rank ", r))
		if err != nil {
			t.Fatal(err)
		}
		ends[r] = collective.NewEndpoint(l)
	}
	made := make([]*communicator, world)
	errs := make(chan error, world)
	for r := range made {
		go func() {
			c, err := collective.New(t.Context(), collective.Options{
				Job: "test", Generation: 1, Rank: r, World: world, Endpoint: ends[r],
				Peers: func(_ context.Context, rank int) (string, error) { return ends[rank].Addr(), nil },
			})
			if err == nil {
				made[r] = newCommunicator(c, "test")
			}
			errs <- err
		}()
	}
	for range made {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		var closed sync.WaitGroup
		for _, c := range made {
			closed.Go(c.close)
		}
		closed.Wait()
		for _, e := range ends {
			_ = e.Close()
		}
	})
	return made
}
