package gateway

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/cluster/waterfall"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// page answers with what is made of the job of a path.
func page[T any](g *Gateway, of func(ctx context.Context, v events.JobView) (T, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, _, err := g.job(r)
		if err != nil {
			return err
		}
		p, err := of(r.Context(), v)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, p)
	}
}

func (g *Gateway) explain(ctx context.Context, v events.JobView) (view.Explanation, error) {
	pool := g.feed.Pool()
	return view.Explain(view.Seen{
		Job: v, Round: g.feed.Round(v.Job), Placement: pool.Jobs[v.Job], Pool: pool, Nodes: g.feed.Nodes(), Silent: g.feed.Silent(ctx), Now: g.Now(),
	}), nil
}

func (g *Gateway) summary(_ context.Context, v events.JobView) (view.Summary, error) {
	return view.Summarize(v, g.Now()), nil
}

func (g *Gateway) timeline(ctx context.Context, v events.JobView) (*timeline.Timeline, error) {
	var facts []events.Event
	err := g.feed.Stored(ctx, v.Job, 0, func(i feed.Item) error {
		facts = append(facts, i.Event)
		return nil
	})
	if heard, ok := g.feed.Heard(v.Job); ok && !v.State.Terminal() {
		facts = append(facts, heard)
	}
	return timeline.New(facts, g.Now()), err
}

// timelinePage answers with the timeline as JSON, or as the picture that regroup timeline -o svg
// writes. A browser that shows it runs nothing of it, and loads nothing for it.
func (g *Gateway) timelinePage(w http.ResponseWriter, r *http.Request) error {
	media := accepted(r, mediaJSON, mediaSVG)
	switch format := r.URL.Query().Get("format"); format {
	case "":
	case "json":
		media = mediaJSON
	case "svg":
		media = mediaSVG
	default:
		return wrong("format", strconv.Quote(limits.Shorten(format, limits.Word.Max))+" is not known: write json or svg")
	}
	w.Header().Set("Vary", "Accept")
	if media != mediaSVG {
		return page(g, g.timeline)(w, r)
	}
	v, _, err := g.job(r)
	if err != nil {
		return err
	}
	t, err := g.timeline(r.Context(), v)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", mediaSVG)
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	h.Set("Cache-Control", "no-store")
	_ = timeline.SVG(w, t) // the client has gone
	return nil
}

func (g *Gateway) jobMetrics(ctx context.Context, v events.JobView) (Series, error) {
	points, err := g.feed.Course(ctx, v.Job)
	return Series{Metrics: points}, err
}

// maxSpans bounds the bytes of the messages with spans that are read for one page.
const maxSpans = 8 << 20

// clocks is how far the clock of who submitted a job may be ahead of the broker's.
const clocks = 5 * time.Minute

// traces reads the messages that have one of the job's traces: its id is in them as it is. They may
// have other spans too.
func (g *Gateway) traces(ctx context.Context, v events.JobView) (waterfall.Page, error) {
	all, err := waterfall.Traces(v, -1)
	if err != nil {
		return waterfall.Page{}, err
	}
	var ids [][]byte
	for _, t := range all {
		if id, err := hex.DecodeString(t.Trace); err == nil && len(id) > 0 {
			ids = append(ids, id)
		}
	}
	var messages [][]byte
	held, cut := 0, false
	err = g.feed.Spans(ctx, v.Submitted.Add(-clocks), func(otlp []byte) error {
		if !slices.ContainsFunc(ids, func(id []byte) bool { return bytes.Contains(otlp, id) }) {
			return nil
		}
		messages, held = append(messages, otlp), held+len(otlp)
		for held > maxSpans {
			held -= len(messages[0])
			messages, cut = messages[1:], true
		}
		return nil
	})
	return waterfall.NewPage(v, messages, cut), err
}
