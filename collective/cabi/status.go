//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/queue"
	"github.com/regroup-io/regroup/elastic"
)

// status is an RG_… constant of regroup.h.
type status int32

const (
	statusOK status = iota
	statusInvalid
	statusPeerLost
	statusAborted
	statusDiverged
	statusRefused
	statusClosed
	statusTimeout
	statusForked // only C says it
	statusUnsupported
	statusFailed
	statusPlanned
	statusStopped
	statusEnd
	statusStuck
	statusLeft
)

// Errors that have a status of their own.
var (
	errTimeout     = errors.New("not within the time given")
	errUnsupported = errors.New("not supported")
	errEnd         = errors.New("there is no further generation for this process")
)

// statusOf sorts an error. Whoever returns one to C also says it in words.
func statusOf(err error) (s status, lost int) {
	var peer *collective.PeerLostError
	lost = -1
	if errors.As(err, &peer) {
		lost = peer.Rank
	}
	switch {
	case err == nil:
		return statusOK, lost
	case errors.Is(err, nccl.ErrStuck):
		return statusStuck, lost
	case errors.Is(err, elastic.ErrPlannedChange):
		return statusPlanned, lost
	case errors.Is(err, elastic.ErrStopped):
		return statusStopped, lost
	case errors.Is(err, elastic.ErrUnfinished):
		return statusLeft, lost
	case errors.Is(err, errEnd):
		return statusEnd, lost
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded):
		return statusTimeout, lost
	case errors.Is(err, errUnsupported), errors.Is(err, nccl.ErrUnavailable):
		return statusUnsupported, lost
	case errors.Is(err, collective.ErrPeerLost):
		return statusPeerLost, lost
	case errors.Is(err, collective.ErrAborted):
		return statusAborted, lost
	case errors.Is(err, collective.ErrDiverged), errors.As(err, new(*queue.DeadlockError)):
		return statusDiverged, lost
	case errors.Is(err, collective.ErrRefused):
		return statusRefused, lost
	case errors.Is(err, collective.ErrClosed), errors.Is(err, nccl.ErrClosed):
		return statusClosed, lost
	case errors.Is(err, collective.ErrInvalid), errors.Is(err, nccl.ErrInvalid), errors.Is(err, queue.ErrPending), errors.As(err, new(*queue.MismatchError)), errors.As(err, new(*queue.JoinedError)):
		return statusInvalid, lost
	}
	return statusFailed, lost
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{collective.ErrInvalid}, args...)...)
}
