package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Event is a fact, with its position in the stream of facts. The body of a type that this version
// does not know is nil.
type Event struct {
	events.Event
	Position uint64
}

// EventsOptions says which facts are read.
type EventsOptions struct {
	Job   ident.JobID // empty = about all jobs and nodes
	Type  string      // a pattern: worker.exited, incident.*; empty = all
	After uint64      // only those after this position; 0 = of a job all, otherwise from now on
	Now   bool        // ends after what is stored now
}

// Events reads facts until ctx ends, which is no error. When the connection breaks it goes on where
// it was, also at another gateway behind the same address, so that none is missed or repeated.
func (c *Client) Events(ctx context.Context, o EventsOptions) iter.Seq2[Event, error] {
	path, err := "/api/v1/events", error(nil)
	if o.Job != "" {
		path, err = jobPath(o.Job, "/events")
	}
	q := url.Values{}
	if o.Type != "" {
		q.Set("type", o.Type)
	}
	s := stream{Client: c, path: path, query: q, at: o.After, given: o.After > 0, ends: o.Now}
	return each(ctx, s, err, func(i item) (e Event, is, last bool, err error) {
		if i.kind != "fact" {
			return e, false, false, nil
		}
		e.Position = i.position
		e.Event, err = cloudevent.Decode(map[string][]string{"Content-Type": {"application/cloudevents+json"}}, i.data)
		if errors.Is(err, events.ErrUnknownType) {
			err = nil
		}
		return e, true, false, err
	})
}

// Line is a line of output of a worker.
type Line struct {
	view.Line
	Position uint64 `json:"-"`
}

// LogsOptions says which output is read.
type LogsOptions struct {
	Ranks string       // 0,3-5; empty = all
	Node  ident.NodeID // empty = all
	Tail  int          // begin with the newest so many lines; 0 = all
	After uint64       // only those after this position
	Now   bool         // ends after what is stored now
}

// Logs reads the output of the workers of a job until its last line, or until ctx ends, which is no
// error. It goes on as Events does. A progress bar is a line that comes open several times a second
// at most, and then finished; with Now only the newest of them comes.
func (c *Client) Logs(ctx context.Context, id ident.JobID, o LogsOptions) iter.Seq2[Line, error] {
	path, err := jobPath(id, "/logs")
	q := url.Values{}
	for name, value := range map[string]string{"rank": o.Ranks, "node": string(o.Node)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	s := stream{Client: c, path: path, query: q, at: o.After, given: o.After > 0, ends: o.Now}
	return each(ctx, s, err, func(i item) (l Line, is, last bool, err error) {
		if i.kind != "line" {
			return l, false, i.kind == "end", nil
		}
		l.Position = i.position
		err = json.Unmarshal(i.data, &l)
		return l, true, false, err
	})
}

// each yields what decode makes of the items of a stream: is = it is a value, last = the stream is
// over. err is what is wrong with the request.
func each[T any](ctx context.Context, s stream, err error, decode func(item) (value T, is, last bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err != nil {
			yield(none, err)
			return
		}
		s := s // each use of the iterator begins anew
		s.read(ctx, func(i item, err error) bool {
			if err != nil {
				return yield(none, err)
			}
			v, is, last, err := decode(i)
			return !last && (!is || yield(v, err))
		})
	}
}

// stream is a stream of server-sent events, and how far it was read.
type stream struct {
	*Client
	path  string
	query url.Values
	at    uint64
	given bool // at is a position
	ends  bool // after what is stored
}

// item is one server-sent event.
type item struct {
	kind     string
	position uint64
	at       bool // it has a position
	data     []byte
}

// errStopped ends a stream because its reader wants no more.
var errStopped = errors.New("the reader has stopped")

// read calls yield until it returns false, ctx ends, an error remains, or what is stored was read.
func (s *stream) read(ctx context.Context, yield func(item, error) bool) {
	back := wait.Backoff{First: 50 * time.Millisecond, Max: time.Second}
	var since time.Time // of the first failure in a row
	for {
		connected, err := s.once(ctx, yield)
		switch {
		case errors.Is(err, errStopped), isCancelled(ctx, err), err == nil && s.ends:
			return
		case err != nil && errcode.Of(err) != errcode.Unavailable:
			yield(item{}, err)
			return
		}
		if connected || since.IsZero() {
			since = time.Now()
			back.Reset()
		}
		if err != nil && time.Since(since) > s.patience {
			yield(item{}, err)
			return
		}
		if !back.Sleep(ctx) {
			return
		}
	}
}

// once reads from one connection. A nil error = the gateway has ended the stream.
func (s *stream) once(ctx context.Context, yield func(item, error) bool) (connected bool, err error) {
	r := request{method: http.MethodGet, path: s.path, query: s.query, header: map[string]string{"Accept": "text/event-stream"}}
	s.query.Set("follow", strconv.FormatBool(!s.ends))
	if s.given {
		r.header["Last-Event-ID"] = strconv.FormatUint(s.at, 10)
	}
	res, err := s.send(ctx, r)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, limits.Unpacked.Max+limits.Message.Max)
	i := item{}
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			if i.position, err = strconv.ParseUint(value, 10, 64); err != nil {
				return true, errcode.Errorf(errcode.Internal, "%s: an event has the id %q: is it a gateway?", s.path, value)
			}
			i.at = true
		case "event":
			i.kind = value
		case "data":
			i.data = append(i.data, value...)
		}
		if len(lines.Bytes()) > 0 {
			continue
		}
		if i.data != nil && i.kind == "error" {
			return true, problem(r, &http.Response{Status: "the stream has ended early", StatusCode: http.StatusInternalServerError, Body: io.NopCloser(bytes.NewReader(i.data))})
		}
		if i.data != nil && !yield(i, nil) {
			return true, errStopped
		}
		if i.at {
			s.at, s.given = i.position, true
		}
		i = item{}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return true, errcode.Errorf(errcode.TooLarge, "%s: an event is longer than %d bytes", s.path, limits.Unpacked.Max)
		}
		return true, errcode.Errorf(errcode.Unavailable, "%s: the connection broke: %w", s.path, err)
	}
	return true, nil
}

// Publish publishes commands as CloudEvents. They are stored when it returns, and facts answer
// them: those whose Cause is the id of a command. An event that is published again, with the same
// source and id, is stored once.
func (c *Client) Publish(ctx context.Context, commands ...events.Event) error {
	batch := []json.RawMessage{}
	var bad []spec.FieldError
	for n, e := range commands {
		m, err := cloudevent.EncodeStructured(e)
		if err != nil {
			bad = append(bad, spec.FieldError{Path: "[" + strconv.Itoa(n) + "]", Message: err.Error()})
			continue
		}
		batch = append(batch, m.Data)
	}
	if err := errcode.Refuse(bad); err != nil {
		return err
	}
	r, err := asJSON(http.MethodPost, "/api/v1/events", batch)
	if err != nil {
		return err
	}
	r.header["Content-Type"] = "application/cloudevents-batch+json"
	return c.do(ctx, r, nil)
}
