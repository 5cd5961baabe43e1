package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

// makingLimit is how long a stream may be missing: a server that has just started creates its
// streams after it has begun to listen.
const makingLimit = 3 * time.Second

// Ready waits until the streams that clients use have leaders, or ctx ends. NotFound if one of them
// does not exist.
func (c *Conn) Ready(ctx context.Context) error {
	streams := []string{events.StreamCommands, events.StreamFacts, bucketStream + events.BucketJobs, bucketStream + events.BucketNodes}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(streams))
	first := -1
	var all sync.WaitGroup
	var once sync.Once
	for i, stream := range streams {
		all.Go(func() {
			if errs[i] = c.streamReady(inner, stream); errs[i] != nil {
				once.Do(func() { first = i })
				cancel()
			}
		})
	}
	if all.Wait(); first < 0 {
		return nil
	}
	return errs[first]
}

func (c *Conn) streamReady(ctx context.Context, stream string) error {
	began := time.Now()
	for {
		err := c.attempt(ctx, "look at stream "+stream, js.DefaultAPIPrefix+"STREAM.INFO."+stream, electionAttempt, func(ctx context.Context) error {
			_, err := c.js.Stream(ctx, stream)
			return err
		})
		missing := errors.Is(err, js.ErrStreamNotFound)
		switch {
		case missing && time.Since(began) < makingLimit && c.state.pause(ctx, electionPause):
		case missing:
			return events.Errorf(events.NotFound, "there is no stream %s on the NATS server: make the topology with: regroup init", stream)
		case errors.Is(err, events.ErrInvalid): // this user may not ask, but may use the streams
			return nil
		case !errors.Is(err, events.ErrUnavailable):
			return err
		case !c.state.pause(ctx, electionPause):
			return err
		}
	}
}
