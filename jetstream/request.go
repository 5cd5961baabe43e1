package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
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
		return events.Errorf(events.Unavailable, "%s: there is no connection to NATS", what)
	}
	switch {
	case err == nil:
		return nil
	case answered(err):
		return coded(what, err)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return events.Errorf(events.Unavailable, "%s: no answer in the time given: %w", what, context.Cause(ctx))
	case ctx.Err() != nil:
		return events.Errorf(events.Cancelled, "%s: %w", what, context.Cause(ctx))
	case c.refused.since(subject, began):
		return events.Errorf(events.Invalid, "%s: this NATS user may not publish to %s", what, subject)
	case inner.Err() != nil:
		return events.Errorf(events.Unavailable, "%s: no answer within %v, the outcome is open", what, limit)
	}
	return coded(what, err)
}

// answered reports whether the server has answered, so that the error is not the end of a context.
func answered(err error) bool {
	var api *js.APIError
	var ours *events.Error
	return errors.As(err, &api) || errors.As(err, &ours) || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrNoResponders)
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
func (c *Conn) get(ctx context.Context, stream string, req getRequest) (events.Stored, error) {
	subject := js.DefaultAPIPrefix + "STREAM.MSG.GET." + stream
	what := "read from stream " + stream
	var out events.Stored
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
			return events.Errorf(events.Internal, "answer of the server: %w", err)
		}
		if a.Error != nil {
			return a.Error
		}
		if a.Message == nil {
			return events.Errorf(events.Internal, "the server answered without a message")
		}
		out = events.Stored{Subject: a.Message.Subject, Data: a.Message.Data, Sequence: a.Message.Sequence, Time: a.Message.Time}
		if len(a.Message.Header) > 0 {
			h, err := nats.DecodeHeadersMsg(a.Message.Header)
			if err != nil {
				return events.Errorf(events.Internal, "stored header: %w", err)
			}
			out.Header = h
		}
		return nil
	})
	return out, err
}
