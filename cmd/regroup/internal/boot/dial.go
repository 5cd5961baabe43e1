package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

// noticeAfter is how long a command waits before it says so.
const noticeAfter = time.Second

// Dial connects a command to c.Server and waits, at most c.Wait, until the server answers and its
// streams are usable: servers that have just started or lost a peer elect leaders first. say is
// called with the reason if the wait exceeds noticeAfter.
func Dial(ctx context.Context, c Config, say func(string)) (*Process, error) {
	until := time.Now().Add(c.Wait)
	quiet := time.AfterFunc(noticeAfter, func() { say(fmt.Sprintf("waiting up to %s for a NATS server at %s", c.Wait, c.Server)) })
	p, err := Open(ctx, c, "cli", nil)
	quiet.Stop()
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	quiet = time.AfterFunc(noticeAfter, func() {
		say(fmt.Sprintf("waiting up to %s for the NATS servers at %s to elect a leader", c.Wait, c.Server))
	})
	defer quiet.Stop()
	switch err := p.Conn.Ready(limit); {
	case err == nil:
		return p, nil
	case limit.Err() != nil && ctx.Err() == nil:
		p.Close()
		return nil, events.Errorf(events.Unavailable, "the NATS servers at %s have no leader after %s: do most of them run? More time: --timeout (%v)", c.Server, c.Wait, err)
	default:
		p.Close()
		return nil, err
	}
}
