package boot

import (
	"context"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

// sayAfter is how long a command waits in silence.
const sayAfter = time.Second

// Dial connects a command to c.Server and waits, for c.Wait at most, until the server is there and
// its streams can be used: servers that have just started, or lost one of theirs, elect leaders
// first. say is called with what is waited for once that takes longer than a moment.
func Dial(ctx context.Context, c Config, say func(string)) (*Process, error) {
	until := time.Now().Add(c.Wait)
	quiet := time.AfterFunc(sayAfter, func() { say(fmt.Sprintf("waiting up to %s for a NATS server at %s", c.Wait, c.Server)) })
	p, err := Open(ctx, c, "cli", nil)
	quiet.Stop()
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	quiet = time.AfterFunc(sayAfter, func() {
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
