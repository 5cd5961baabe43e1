package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// survive reduces until a peer is lost, prints which and when, and continues with the others in the
// generation that the next line of the input describes: its number, the rank and all addresses.
func (o config) survive(ctx context.Context, lines *bufio.Reader, options collective.Options, bytes int) error {
	v := make([]float32, bytes/4)
	for {
		comm, err := collective.New(ctx, options)
		if err != nil {
			return err
		}
		err = o.work(ctx, comm, v)
		at := time.Now().UnixNano()
		var lost *collective.PeerLostError
		if !errors.As(err, &lost) {
			return err
		}
		fmt.Println("lost", lost.Rank, at)
		_ = comm.Close()
		line, _ := lines.ReadString('\n')
		if line == "" {
			return nil // done
		}
		if _, err := fmt.Sscan(line, &options.Generation, &options.Rank); err != nil {
			return err
		}
		addrs := strings.Fields(line)[2:]
		options.World = len(addrs)
		options.Peers = func(_ context.Context, r int) (string, error) { return addrs[r], nil }
		if options.LocalSize > 0 {
			options.LocalRank, options.LocalSize = options.Rank, options.World
		}
	}
}

// work reduces, checks, prints the time of the first result, and continues to reduce.
func (o config) work(ctx context.Context, c *collective.Communicator, v []float32) error {
	for k := range v {
		v[k] = float32(c.Rank() + 1)
	}
	if err := collective.Allreduce(ctx, c, v, collective.Sum); err != nil {
		return err
	}
	want := float32(c.World() * (c.World() + 1) / 2)
	for k := range v {
		if v[k] != want {
			return fmt.Errorf("element %d is %v, not %v", k, v[k], want)
		}
	}
	fmt.Println("good", c.Generation(), time.Now().UnixNano())
	clear(v)
	for {
		if err := collective.Allreduce(ctx, c, v, collective.Sum); err != nil {
			return err
		}
	}
}
