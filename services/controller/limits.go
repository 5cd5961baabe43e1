package controller

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Times and limits of a host; the simulation plays hosts with the same.
const (
	ReconcileEvery  = 10 * time.Second
	RepublishAfter  = time.Second            // an outbox that waits for longer is told by whoever sees it
	DecodeAfter     = 2 * time.Second        // a long document that another replica has written is read for its alarms
	RetryAfter      = time.Second            // the store was not there
	MinTickInterval = 100 * time.Millisecond // the least time between two ticks of one entity
	MaxAttempt      = 8                      // deliveries of an input that fails in itself
)

// ErrUnrouted settles an input that concerns no entity.
var ErrUnrouted = events.Errorf(events.NotFound, "concerns nothing that is known here")
