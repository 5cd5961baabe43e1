package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// requestLimit limits one request to JetStream. A replicated stream whose leader is dead does not
// answer for 4 to 8 s (the server's election timeouts are fixed): a longer wait would only hide
// this from the caller, which retries with the same id.
const requestLimit = 2 * time.Second

// attempt runs one request: it waits for the connection, limits the time, and converts the error.
// subject is where it is sent, to distinguish a refused permission from silence.
func (c *Conn) attempt(ctx context.Context, what, subject string, limit time.Duration, do func(ctx context.Context) error) error {
	began := time.Now()
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.state.await(inner)
	if err == nil {
		err = do(inner)
	} else if ctx.Err() == nil {
		return errcode.Errorf(errcode.Unavailable, "%s: there is no connection to NATS", what)
	}
	switch {
	case err == nil:
		return nil
	case answered(err):
		return coded(what, err)
	case c.refused.Since(subject, began):
		return errcode.Errorf(errcode.Invalid, "%s: this NATS user may not publish to %s", what, subject)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errcode.Errorf(errcode.Unavailable, "%s: no answer in the time given: %w", what, context.Cause(ctx))
	case ctx.Err() != nil:
		return errcode.Errorf(errcode.Cancelled, "%s: %w", what, context.Cause(ctx))
	case inner.Err() != nil:
		return errcode.Errorf(errcode.Unavailable, "%s: no answer within %v, the outcome is open", what, limit)
	}
	return coded(what, err)
}

// request is attempt for a request to JetStream with a result.
func request[T any](ctx context.Context, c *Conn, what, subject string, do func(ctx context.Context) (T, error)) (out T, err error) {
	err = c.attempt(ctx, what, subject, requestLimit, func(ctx context.Context) error {
		out, err = do(ctx)
		return err
	})
	return out, err
}

// answered reports whether the server has answered, so that the error is not the end of a context.
func answered(err error) bool {
	_, api := errors.AsType[*js.APIError](err)
	_, ours := errors.AsType[*errcode.Error](err)
	return api || ours || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrNoResponders)
}

// getRequest asks a stream's leader for one stored message.
type getRequest struct {
	Sequence uint64 `json:"seq,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"` // the first at or after Sequence
}

type getAnswer struct {
	Message *struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
	Error *js.APIError `json:"error"`
}

// get reads one stored message from the stream's leader. nats.go's own get asks any replica if a
// stream allows direct gets, and straight after an acknowledged write on three servers one answer
// in six is the old value: this request is never sent to a replica.
func (c *Conn) get(ctx context.Context, stream string, req getRequest) (broker.Stored, error) {
	subject := js.DefaultAPIPrefix + "STREAM.MSG.GET." + stream
	what := "read from stream " + stream
	var out broker.Stored
	err := c.attempt(ctx, what, subject, requestLimit, func(ctx context.Context) error {
		body, err := json.Marshal(req)
		if err != nil {
			return err
		}
		m, err := c.nc.RequestWithContext(ctx, subject, body)
		if err != nil {
			return err
		}
		var a getAnswer
		if err := json.Unmarshal(m.Data, &a); err != nil {
			return errcode.Errorf(errcode.Internal, "answer of the server: %w", err)
		}
		if a.Error != nil {
			return a.Error
		}
		if a.Message == nil {
			return errcode.Errorf(errcode.Internal, "the server answered without a message")
		}
		out = broker.Stored{Subject: a.Message.Subject, Data: a.Message.Data, Sequence: a.Message.Sequence, Time: a.Message.Time}
		if len(a.Message.Header) > 0 {
			h, err := nats.DecodeHeadersMsg(a.Message.Header)
			if err != nil {
				return errcode.Errorf(errcode.Internal, "stored header: %w", err)
			}
			out.Header = incoming(h)
		}
		return nil
	})
	return out, err
}

// Error codes of the JetStream API without a name in nats.go.
const (
	apiNoPeers     js.ErrorCode = 10005 // replicas requested while peers are still unknown
	apiNoLeader    js.ErrorCode = 10008 // the cluster has no leader now
	apiNoResources js.ErrorCode = 10023
	apiNoStorage   js.ErrorCode = 10047
	apiStoreFailed js.ErrorCode = 10077 // its text has the reason: maximum bytes exceeded, no space left ...
	apiNotLeader   js.ErrorCode = 10009 // the server is not the stream's leader any more
	apiInProcess   js.ErrorCode = 10158 // a message of this id was proposed, and is not committed yet
	apiUnavailable              = 503
)

// coded converts an error of the library to one with a code. what names the operation.
func coded(what string, err error) error {
	if err == nil {
		return nil
	}
	if ours, ok := errors.AsType[*errcode.Error](err); ok {
		return errcode.Errorf(ours.Code, "%s: %w", what, err)
	}
	if api, ok := errors.AsType[*js.APIError](err); ok {
		return codedAPI(what, api, err)
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return errcode.Errorf(errcode.TooLarge, "%s: larger than the NATS server takes (max_payload): %w", what, err)
	case errors.Is(err, context.Canceled):
		return errcode.Errorf(errcode.Cancelled, "%s: %w", what, err)
	case errors.Is(err, js.ErrMsgNotFound), errors.Is(err, js.ErrKeyNotFound):
		return errcode.Errorf(errcode.NotFound, "%s: %w", what, err)
	case errors.Is(err, js.ErrNoStreamResponse):
		return errcode.Errorf(errcode.Unavailable, "%s: no stream answers for this subject: its leader is being elected, or it was never made (regroup init)", what)
	case errors.Is(err, nats.ErrNoResponders):
		return errcode.Errorf(errcode.Unavailable, "%s: %w: %w", what, broker.ErrNoResponder, err)
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, js.ErrInvalidKey), errors.Is(err, js.ErrInvalidSubject):
		return errcode.Errorf(errcode.Invalid, "%s: %w", what, err)
	}
	// Timeouts, lost connections, a server that shuts down, a truncated answer: all are temporary.
	return errcode.Errorf(errcode.Unavailable, "%s: %w", what, err)
}

func codedAPI(what string, api *js.APIError, err error) error {
	switch api.ErrorCode {
	// Two codes with one meaning: the second is a replicated stream's while another proposal is in
	// flight. TestBothConflictCodesAreConflict shows them.
	case js.JSErrCodeStreamWrongLastSequence, js.JSErrCodeStreamWrongLastSequenceConstant:
		return errcode.Errorf(errcode.Conflict, "%s: another writer was first: %w", what, err)
	case js.JSErrCodeMessageNotFound:
		return errcode.Errorf(errcode.NotFound, "%s: %w", what, err)
	case js.JSErrCodeStreamMessageExceedsMaximum:
		return errcode.Errorf(errcode.TooLarge, "%s: larger than the stream takes: %w", what, err)
	case apiNoResources, apiNoStorage, apiStoreFailed:
		return errcode.Errorf(errcode.Unavailable, "%s: the NATS server stores nothing more, its limit or disk is full: %w", what, err)
	case apiInProcess:
		return errcode.Errorf(errcode.Unavailable, "%s: the stream's leader has not stored an earlier try yet, most of its brokers have not answered it: %w", what, err)
	case js.JSErrCodeStreamNotFound, apiNoPeers, apiNoLeader, apiNotLeader, js.JSErrCodeConsumerNotFound:
		return errcode.Errorf(errcode.Unavailable, "%s: %w", what, err)
	}
	switch {
	case api.Code == apiUnavailable || strings.Contains(api.Description, "no suitable peers"):
		return errcode.Errorf(errcode.Unavailable, "%s: %w", what, err)
	case api.Code == 404:
		return errcode.Errorf(errcode.NotFound, "%s: %w", what, err)
	case api.Code == 400:
		return errcode.Errorf(errcode.Invalid, "%s: %w", what, err)
	}
	return errcode.Errorf(errcode.Internal, "%s: %w", what, err)
}

// clockLife is how long an answer about the server's clock is used: no clock drifts much by then.
const clockLife = 10 * time.Second

// clock is the cached answer of the server's clock.
type clock struct {
	mu     sync.Mutex
	epoch  uint64    // connection of the answer
	asked  time.Time // on the monotonic clock of this process
	server time.Time // the server's time then
}

type storeClock struct{ c *Conn }

// Now implements broker.Clock. It asks the leader of the command stream, which times commands.
func (p storeClock) Now(ctx context.Context) (time.Time, error) {
	c := p.c
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	_, epoch, _ := c.state.get()
	if age := time.Since(c.clock.asked); !c.clock.server.IsZero() && epoch == c.clock.epoch && age < clockLife {
		return c.clock.server.Add(age), nil
	}
	var asked time.Time
	s, err := request(ctx, c, "ask the server for its time", infoSubject(events.StreamCommands), func(ctx context.Context) (js.Stream, error) {
		asked = time.Now()
		return c.js.Stream(ctx, events.StreamCommands)
	})
	if err != nil {
		return time.Time{}, err
	}
	now := s.CachedInfo().TimeStamp
	if now.IsZero() {
		return now, errcode.Errorf(errcode.Internal, "the server answered without its time")
	}
	c.clock.epoch, c.clock.asked, c.clock.server = epoch, asked, now
	return now.Add(time.Since(asked)), nil
}
