package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// AwaitNodes waits until discovery shows the named nodes as ready.
func (c *Client) AwaitNodes(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, events.Errorf(events.Unavailable, "discovery has not taken them in within 20 s"))
	defer cancel()
	for {
		all, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		ready := 0
		for _, v := range all {
			if v.State == events.NodeStateReady && slices.Contains(names, string(v.Node)) {
				ready++
			}
		}
		if ready == len(names) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are ready: %w", ready, len(names), context.Cause(ctx))
		}
	}
}
