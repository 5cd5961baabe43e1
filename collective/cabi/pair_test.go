//go:build cgo

package main

import (
	"context"
	"fmt"
	"os"
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
func pair(t *testing.T) [2]*communicator {
	t.Helper()
	network := inproc.NewNetwork()
	var ends [2]*collective.Endpoint
	for r := range ends {
		l, err := network.Listen([]string{"a", "b"}[r])
		if err != nil {
			t.Fatal(err)
		}
		ends[r] = collective.NewEndpoint(l)
	}
	var made [2]*communicator
	errs := make(chan error, 2)
	for r := range made {
		go func() {
			c, err := collective.New(t.Context(), collective.Options{
				Job: "test", Generation: 1, Rank: r, World: 2, Endpoint: ends[r],
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
		closed := make(chan struct{})
		go func() { made[0].close(); close(closed) }()
		made[1].close()
		<-closed
		for _, e := range ends {
			_ = e.Close()
		}
	})
	return made
}
