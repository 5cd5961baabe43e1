package jetstream

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

// Error codes of the JetStream API without a name in nats.go.
const (
	apiNoPeers     js.ErrorCode = 10005 // replicas requested while peers are still unknown
	apiNoLeader    js.ErrorCode = 10008 // the cluster has no leader now
	apiNoResources js.ErrorCode = 10023
	apiNoStorage   js.ErrorCode = 10047
	apiStoreFailed js.ErrorCode = 10077 // its text has the reason: maximum bytes exceeded, no space left ...
	apiUnavailable              = 503
)

// coded converts an error of the library to one with a code. what names the operation and its
// object.
func coded(what string, err error) error {
	if err == nil {
		return nil
	}
	var ours *events.Error
	if errors.As(err, &ours) {
		return events.Errorf(ours.Code, "%s: %w", what, err)
	}
	var api *js.APIError
	switch {
	case errors.As(err, &api):
		return codedAPI(what, api, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return events.Errorf(events.TooLarge, "%s: larger than the NATS server takes (max_payload): %w", what, err)
	case errors.Is(err, context.Canceled):
		return events.Errorf(events.Cancelled, "%s: %w", what, err)
	case errors.Is(err, js.ErrMsgNotFound), errors.Is(err, js.ErrKeyNotFound):
		return events.Errorf(events.NotFound, "%s: %w", what, err)
	case errors.Is(err, js.ErrNoStreamResponse):
		return events.Errorf(events.Unavailable, "%s: no stream answers for this subject: its leader is being elected, or it was never made (regroup init)", what)
	case errors.Is(err, nats.ErrNoResponders):
		return events.Errorf(events.Unavailable, "%s: no responder: %w", what, err)
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, js.ErrInvalidKey), errors.Is(err, js.ErrInvalidSubject):
		return events.Errorf(events.Invalid, "%s: %w", what, err)
	}
	// Timeouts, lost connections, a server that shuts down, a truncated answer: all are temporary.
	return events.Errorf(events.Unavailable, "%s: %w", what, err)
}

func codedAPI(what string, api *js.APIError, err error) error {
	switch api.ErrorCode {
	// Two codes with one meaning: the second is a replicated stream's while another proposal is in
	// flight. TestBothConflictCodesAreConflict shows them.
	case js.JSErrCodeStreamWrongLastSequence, js.JSErrCodeStreamWrongLastSequenceConstant:
		return events.Errorf(events.Conflict, "%s: another writer was first: %w", what, err)
	case js.JSErrCodeMessageNotFound:
		return events.Errorf(events.NotFound, "%s: %w", what, err)
	case js.JSErrCodeStreamMessageExceedsMaximum:
		return events.Errorf(events.TooLarge, "%s: larger than the stream takes: %w", what, err)
	case apiNoResources, apiNoStorage, apiStoreFailed:
		return events.Errorf(events.Unavailable, "%s: the NATS server stores nothing more, its limit or disk is full: %w", what, err)
	case js.JSErrCodeStreamNotFound, apiNoPeers, apiNoLeader, js.JSErrCodeConsumerNotFound:
		return events.Errorf(events.Unavailable, "%s: %w", what, err)
	}
	switch {
	case api.Code == apiUnavailable || strings.Contains(api.Description, "no suitable peers"):
		return events.Errorf(events.Unavailable, "%s: %w", what, err)
	case api.Code == 404:
		return events.Errorf(events.NotFound, "%s: %w", what, err)
	case api.Code == 400:
		return events.Errorf(events.Invalid, "%s: %w", what, err)
	}
	return events.Errorf(events.Internal, "%s: %w", what, err)
}
