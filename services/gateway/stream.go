package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// keepAlive is how often a stream says something when there is nothing to say, so that proxies and
// clients keep the connection.
const keepAlive = 15 * time.Second

// beatEvery is how often a stream of live items says that it is alive, and whether this gateway has
// a connection itself: a page that hears nothing for longer shows that it knows nothing.
const beatEvery = 2 * time.Second

// stream writes items to one client, as server-sent events, as JSON lines or as text.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	media   string
	buffer  bytes.Buffer
	within  time.Duration // for each write
	valid   func() bool   // its token still counts
	checked time.Time     // when valid was asked
	beats   *time.Timer   // when something is to be said, so that the connection is kept
	beat    func() []byte // what is said then, as an item; nil = a comment
	leave   func()
}

// accepted returns the first of the media types that a request accepts, which are in order of
// preference; "" if it accepts none.
func accepted(r *http.Request, media ...string) string {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if header == "" {
		return media[0]
	}
	for part := range strings.SplitSeq(header, ",") {
		want, q, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil || q["q"] == "0" {
			continue
		}
		for _, m := range media {
			kind, _, _ := strings.Cut(m, "/")
			if want == m || want == "*/*" || want == kind+"/*" || (want == mediaJSON && m == mediaNDJSON) {
				return m
			}
		}
	}
	return ""
}

// openStream begins a stream in one of the media types that the request accepts.
func (g *Gateway) openStream(w http.ResponseWriter, r *http.Request, media ...string) (*stream, error) {
	chosen := accepted(r, media...)
	if chosen == "" {
		return nil, withStatus(http.StatusNotAcceptable, wrong("Accept", "none of it is available: send "+strings.Join(media, " or ")))
	}
	who := asker(r.Context())
	leave, err := g.streams.enter(who)
	if err != nil {
		return nil, err
	}
	s := &stream{w: w, control: http.NewResponseController(w), media: chosen, within: g.Patience.Write, checked: time.Now(), beats: time.NewTimer(keepAlive), leave: leave}
	s.valid = func() bool { return g.keys.known(who) }
	h := w.Header()
	h.Set("Content-Type", chosen)
	if chosen == mediaText {
		h.Set("Content-Type", chosen+"; charset=utf-8")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	// The body was read: from here on only writes have a time-out, each its own.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		s.leave()
		return nil, errcode.Errorf(errcode.Internal, "a stream cannot be opened: %w", err)
	}
	return s, nil
}

// add queues an item; id may be empty. The error is that of a client that has gone.
func (s *stream) add(kind, id string, data []byte) error {
	switch s.media {
	case mediaSSE:
		if id != "" {
			fmt.Fprintf(&s.buffer, "id: %s\n", id)
		}
		fmt.Fprintf(&s.buffer, "event: %s\ndata: ", kind)
		s.buffer.Write(data)
		s.buffer.WriteString("\n\n")
	default:
		s.buffer.Write(data)
		s.buffer.WriteByte('\n')
	}
	if s.buffer.Len() > flushOver {
		return s.flush()
	}
	return nil
}

// position tells the client where it is, in an event without data, which none shows.
func (s *stream) position(at uint64) {
	if s.media == mediaSSE {
		fmt.Fprintf(&s.buffer, "id: %d\n\n", at)
	}
}

const (
	flushOver = 64 << 10 // how much is queued at most
	batch     = 256      // how many items of a ring are read at once
)

// errRevoked ends a stream whose token was revoked, or has expired.
var errRevoked = errors.New("the token counts no more")

// flush sends the queued text. A client that does not read it in time is disconnected.
func (s *stream) flush() error {
	if now := time.Now(); now.Sub(s.checked) >= keepAlive {
		if s.checked = now; !s.valid() {
			return errRevoked
		}
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(s.within)); err != nil {
		return err
	}
	if _, err := s.w.Write(s.buffer.Bytes()); err != nil {
		return err
	}
	s.buffer.Reset()
	return s.control.Flush()
}

// wait waits until one of the channels is closed, or says something. false = the client has gone,
// or ctx has ended.
func (s *stream) wait(ctx context.Context, some, others <-chan struct{}) bool {
	select {
	case <-some:
	case <-others:
	case <-s.beats.C:
		switch {
		case s.beat != nil:
			s.beats.Reset(beatEvery)
			if s.add("beat", "", s.beat()) != nil {
				return false
			}
		default:
			s.beats.Reset(keepAlive)
			if s.media == mediaSSE {
				s.buffer.WriteString(": \n\n")
			}
		}
		return s.flush() == nil
	case <-ctx.Done():
		return false
	}
	return true
}

// position is where a client wants to continue: Last-Event-ID, or the parameter after.
func position(r *http.Request) (after uint64, given bool, err error) {
	name, text := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if text == "" {
		name, text = "after", r.URL.Query().Get("after")
	}
	if text == "" {
		return 0, false, nil
	}
	after, err = strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, true, wrong(name, strconv.Quote(text[:min(len(text), 64)])+" is no position: send the id of an event")
	}
	return after, true, nil
}

func (g *Gateway) allEvents(w http.ResponseWriter, r *http.Request) error {
	live, err := boolean(r, "live", false)
	if err != nil {
		return err
	}
	return g.events(w, r, "", live)
}

func (g *Gateway) jobEvents(w http.ResponseWriter, r *http.Request) error {
	id := ident.JobID(r.PathValue("job"))
	if err := id.Check(); err != nil {
		return err
	}
	if _, _, ok := g.feed.Job(id); !ok && !g.awaited.has(id) { // perhaps its record was removed, or is not read yet
		_, err := g.Ports.Log.Last(r.Context(), events.StreamFacts, events.FamilySubject("*", string(id)))
		if errcode.Of(err) == errcode.NotFound {
			return errcode.Errorf(errcode.NotFound, "there is no job %q", id)
		}
		if err != nil {
			return err
		}
	}
	return g.events(w, r, id, false)
}

// events streams facts. Those that are in the ring come from there, older ones are read for this
// client.
func (g *Gateway) events(w http.ResponseWriter, r *http.Request, job ident.JobID, live bool) error {
	pattern := r.URL.Query().Get("type")
	if pattern != "" {
		if f := view.CheckPattern("type", pattern); f != nil {
			return errcode.Refuse([]spec.FieldError{*f})
		}
	}
	after, given, err := position(r)
	if err != nil {
		return err
	}
	text, err := boolean(r, "text", false)
	if err != nil {
		return err
	}
	follows, err := boolean(r, "follow", accepted(r, mediaSSE, mediaNDJSON) == mediaSSE)
	if err != nil {
		return err
	}
	s, err := g.openStream(w, r, mediaSSE, mediaNDJSON)
	if err != nil {
		return err
	}
	defer s.leave()
	f := &factReader{g: g, out: s, job: job, pattern: pattern, live: live, text: text, after: after, changed: g.feed.Live.Last()}
	if !follows {
		g.ended(r.Context(), s, g.feed.Stored(r.Context(), job, after+1, f.send))
		return nil
	}
	newest := g.feed.Facts.Last()
	f.after = min(after, newest) // of a stream that was made anew
	if !given && job == "" {
		f.after = newest
	}
	if live && s.media == mediaSSE {
		s.beat = g.beat
		s.beats.Reset(0)
	}
	// The position is fixed before the client learns that the stream is open, so that it gets all
	// that comes after that, also if it connects again before the first.
	s.position(f.after)
	if s.flush() == nil {
		f.follow(r.Context())
	}
	return nil
}

// Beat is the data of an item that says that a stream is alive.
type Beat struct {
	Now       time.Time `json:"now"`       // on the gateway's clock
	Connected bool      `json:"connected"` // the gateway hears the brokers
	Since     time.Time `json:"since"`     // of Connected; when the gateway began, if it has not changed
}

func (g *Gateway) beat() []byte {
	connected, since := g.feed.ConnectedSince()
	data, _ := json.Marshal(Beat{g.Now(), connected, since}) // it has no value that JSON lacks
	return data
}

// factReader writes the facts after a position to a stream.
type factReader struct {
	g       *Gateway
	out     *stream
	job     ident.JobID // empty = all
	pattern string      // of types
	live    bool        // also what has no position
	text    bool        // each as a Told
	after   uint64
	changed uint64 // position among what has none in the stream
}

// Told is a fact with what it says in one sentence, as the command line shows it.
type Told struct {
	Text   string          `json:"text"`
	Family events.Family   `json:"family"`
	Event  json.RawMessage `json:"event"` // the CloudEvent
}

// send writes a fact if it is wanted. The error is that of a client that has gone.
func (f *factReader) send(i feed.Item) error {
	if f.pattern != "" && !view.Matches(f.pattern, i.Event.Body.Type()) {
		return nil
	}
	data := i.Data
	if f.text {
		told, err := json.Marshal(Told{view.Describe(i.Event.Body), i.Event.Body.Type().Family(), json.RawMessage(data)})
		if err != nil {
			return err
		}
		data = told
	}
	return f.out.add(i.Kind, strconv.FormatUint(i.Sequence, 10), data)
}

// follow writes what comes until the client has gone, or ctx ends.
func (f *factReader) follow(ctx context.Context) {
	for {
		more, another, err := f.some(ctx)
		if err != nil || !f.out.wait(ctx, more, another) {
			return
		}
	}
}

// some writes what there is, or a part of it. The channels are closed when there is more.
func (f *factReader) some(ctx context.Context) (more, another <-chan struct{}, err error) {
	if f.after, more, err = f.g.feed.Read(ctx, f.job, f.after, f.send); err != nil {
		return nil, nil, err
	}
	if f.live {
		var items []feed.Item
		items, another = f.g.feed.Live.After(f.changed, batch)
		for _, i := range items {
			f.changed = i.Sequence
			if err := f.out.add(i.Kind, "", i.Data); err != nil {
				return nil, nil, err
			}
		}
	}
	return more, another, f.out.flushSome()
}

// flushSome is flush if there is something.
func (s *stream) flushSome() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	return s.flush()
}

// ended sends the rest, and an error as a last item.
func (g *Gateway) ended(ctx context.Context, s *stream, err error) {
	gone := errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
	if err != nil && errcode.Of(err) != errcode.Cancelled && !gone {
		g.Logger.WarnContext(ctx, "a stream has ended", "code", string(errcode.Of(err)), "reason", err.Error())
		p, _ := json.Marshal(Problem{Type: "about:blank", Title: "the stream has ended early", Status: statusOf(err), Detail: err.Error(), Code: errcode.Of(err)}) // it has no value that JSON lacks
		_ = s.add("error", "", p)                                                                                                                                  // the client has gone
	}
	_ = s.flush() // the client has gone
}
