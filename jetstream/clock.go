package jetstream

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

// clockLife is how long an answer about the server's clock is used: neither clock drifts by a
// second in that time.
const clockLife = 10 * time.Second

// clock is the cached answer of the server's clock.
type clock struct {
	mu     sync.Mutex
	epoch  uint64    // connection of the answer
	asked  time.Time // on the monotonic clock of this process
	server time.Time // the server's time then
}

type storeClock struct{ c *Conn }

// Now implements events.Clock. It asks the leader of the command stream, which also sets the times
// of commands.
func (p storeClock) Now(ctx context.Context) (time.Time, error) {
	c := p.c
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	_, epoch, _ := c.state.get()
	if age := time.Since(c.clock.asked); !c.clock.server.IsZero() && epoch == c.clock.epoch && age < clockLife {
		return c.clock.server.Add(age), nil
	}
	subject := js.DefaultAPIPrefix + "STREAM.INFO." + events.StreamCommands
	var began time.Time
	var a struct {
		Now   time.Time    `json:"ts"`
		Error *js.APIError `json:"error"`
	}
	if err := c.attempt(ctx, "ask the server for its time", subject, requestLimit, func(ctx context.Context) error {
		began = time.Now()
		m, err := c.nc.RequestWithContext(ctx, subject, nil)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(m.Data, &a); err != nil {
			return events.Errorf(events.Internal, "answer of the server: %w", err)
		}
		if a.Error != nil {
			return a.Error
		}
		if a.Now.IsZero() {
			return events.Errorf(events.Internal, "the server answered without its time")
		}
		return nil
	}); err != nil {
		return time.Time{}, err
	}
	c.clock.epoch, c.clock.asked, c.clock.server = epoch, began, a.Now
	return a.Now.Add(time.Since(began)), nil
}
