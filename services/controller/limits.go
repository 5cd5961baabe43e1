package controller

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Times and limits of every controller.
const (
	ReconcileEvery  = 10 * time.Second
	RepublishAfter  = time.Second            // an outbox that waits for longer is published by any replica that sees it
	DecodeAfter     = 2 * time.Second        // a long document that another replica has written is decoded for its timers
	RetryAfter      = time.Second            // after an error of the bucket
	MinTickInterval = 100 * time.Millisecond // between two ticks of one entity
	MaxAttempt      = 8                      // deliveries of an input that fails by itself

	inboxSize    = 8192
	batchSize    = 4096
	decodeAtOnce = 32 << 10 // bytes of a document
	longProcess  = 5 * time.Millisecond
	longRest     = 20 * time.Millisecond
	processLimit = 5 * time.Second // a bucket that does not answer must not block the other entities for ever
	newerAfter   = 5 * time.Second // time for a replica of a newer version to receive what this one cannot read
)

// ErrUnrouted settles an input that concerns no entity.
var ErrUnrouted = events.Errorf(events.NotFound, "concerns nothing that is known here")
