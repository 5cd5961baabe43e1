package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// selection is which lines a client wants.
type selection struct {
	ranks view.Ranks
	node  ident.NodeID // empty = all
}

func (s selection) wants(l view.Line) bool {
	return (s.node == "" || l.Place.Node == s.node) && s.ranks.Has(l)
}

// logs streams the output of a job's workers.
func (g *Gateway) logs(w http.ResponseWriter, r *http.Request) error {
	v, _, err := g.job(r)
	if err != nil {
		return err
	}
	s := selection{node: ident.NodeID(r.URL.Query().Get("node"))}
	ranks, ok := view.ParseRanks(r.URL.Query().Get("rank"))
	if s.ranks = ranks; !ok {
		return wrong("rank", fmt.Sprintf("%q is no list of ranks: write 0,3-5", limits.Shorten(r.URL.Query().Get("rank"), limits.Word.Max)))
	}
	if s.node != "" && s.node.Check() != nil {
		return wrong("node", fmt.Sprintf("%q is no name of a node", limits.Shorten(string(s.node), limits.Word.Max)))
	}
	newest, err := number(r, "tail", 0)
	if err != nil {
		return err
	}
	follows, err := boolean(r, "follow", false)
	if err != nil {
		return err
	}
	after, given, err := position(r)
	if err != nil {
		return err
	}
	out, err := g.openStream(w, r, mediaText, mediaNDJSON, mediaSSE)
	if err != nil {
		return err
	}
	defer out.leave()
	l := lineWriter{g: g, out: out, want: s, after: after, bounded: r.URL.Query().Has("tail"), follows: follows}
	if follows {
		l.follow(r, v.Job, int(min(newest, 1<<30)), given)
		return nil
	}
	if l.bounded && !given {
		l.tail(r, v.Job, int(min(newest, 1<<30)))
		return nil
	}
	err = g.feed.Lines(r.Context(), v.Job, s.node, feed.ChunkOf(after), l.line)
	if err == nil {
		err = l.rest()
	}
	g.ended(r.Context(), out, err)
	return nil
}

// lineWriter writes the wanted lines after a position. Lines that are not finished are for who
// follows: others get those that nothing has replaced, as the last ones. Text has one of them every
// 30 s, because its reader cannot replace it.
type lineWriter struct {
	g          *Gateway
	out        *stream
	want       selection
	after      uint64
	bounded    bool // only the newest lines are wanted
	follows    bool
	unfinished output.Unfinished[view.Line]
	pace       output.Pace
}

func (l *lineWriter) line(position uint64, x view.Line) error {
	if position <= l.after {
		return nil
	}
	l.after = position
	wanted := l.want.wants(x) // the place may have another rank meanwhile, whose lines replace those before
	if !l.follows {
		l.unfinished.Take(x.Source(), x.Open && wanted, x)
	}
	takes := l.pace.Takes(x.Source(), x.Open && wanted, x.Time)
	switch {
	case !wanted, x.Open && !l.follows, l.follows && l.out.media == mediaText && !takes:
		return nil
	}
	return l.send(x)
}

// rest writes the lines that are not finished at the end.
func (l *lineWriter) rest() error {
	for _, x := range l.unfinished.All() {
		if err := l.send(x); err != nil {
			return err
		}
	}
	return nil
}

// send writes a line.
func (l *lineWriter) send(x view.Line) error {
	if l.out.media != mediaText {
		data, err := json.Marshal(x)
		if err != nil {
			return err
		}
		return l.out.add("line", strconv.FormatUint(l.after, 10), data)
	}
	rank := "-"
	if x.Rank >= 0 {
		rank = strconv.Itoa(int(x.Rank))
	}
	return l.out.add("line", "", fmt.Appendf(nil, "[%s r%s %s] %s", x.Place.Node, rank, x.Generation, x.Text))
}

// item is line for an item of a ring.
func (l *lineWriter) item(i feed.Item) error {
	var x view.Line
	if err := json.Unmarshal(i.Data, &x); err != nil {
		return err
	}
	return l.line(i.Sequence, x)
}

// tail sends the newest lines of those that are kept for readers.
func (l *lineWriter) tail(r *http.Request, job ident.JobID, n int) {
	t, leave := l.g.feed.Tail(job)
	defer leave()
	select {
	case <-t.Read:
	case <-r.Context().Done():
		return
	}
	var found []feed.Item
	items, _ := t.Ring.After(0, 1<<30)
	for _, i := range slices.Backward(items) {
		var x view.Line
		if len(found) == n {
			break
		}
		if json.Unmarshal(i.Data, &x) == nil && l.want.wants(x) {
			found = append(found, i)
		}
	}
	for _, i := range slices.Backward(found) {
		if l.item(i) != nil {
			return
		}
	}
	if l.rest() != nil {
		return
	}
	l.g.ended(r.Context(), l.out, nil)
}

// follow sends lines from the position or, with tail, the newest ones, and then what comes. After
// the last line of a job that has ended text and JSON lines end. Server-sent events tell of it and
// stay open, because browsers would connect again.
func (l *lineWriter) follow(r *http.Request, job ident.JobID, n int, resumes bool) {
	ctx := r.Context()
	t, leave := l.g.feed.Tail(job)
	defer leave()
	select {
	case <-t.Read:
	case <-ctx.Done():
		return
	}
	if l.bounded && !resumes {
		l.after = t.Ring.Back(n)
	}
	if l.out.flush() != nil { // the headers: from here on the client misses nothing
		return
	}
	reported, live := false, l.g.feed.Live.Last()
	for {
		v, _, there := l.g.feed.Job(job)
		ended := !there || v.State.Terminal()
		if first := t.Ring.First(); first > l.after+1 && !l.bounded {
			if err := l.g.feed.Lines(ctx, job, l.want.node, feed.ChunkOf(l.after), l.line); err != nil {
				return
			}
		}
		l.bounded = false
		items, more := t.Ring.After(l.after, batch)
		for _, i := range items {
			if l.item(i) != nil {
				return
			}
			l.after = max(l.after, i.Sequence)
		}
		if l.out.flushSome() != nil {
			return
		}
		if len(items) > 0 {
			continue
		}
		if ended && !reported {
			// All output was stored before the job ended, but the ring may be behind.
			if err := l.g.feed.Lines(ctx, job, l.want.node, feed.ChunkOf(l.after), l.line); err != nil {
				return
			}
			if reported = true; l.out.media != mediaSSE {
				_ = l.out.flush() // the client has gone
				return
			}
			if l.out.add("end", "", fmt.Appendf(nil, `{"state":%q}`, v.State)) != nil || l.out.flush() != nil {
				return
			}
			continue
		}
		changes, changed := l.g.feed.Live.After(live, batch)
		for _, i := range changes {
			live = i.Sequence
		}
		if reported {
			changed = nil
		} else if len(changes) > 0 {
			continue
		}
		if !l.out.wait(ctx, more, changed) {
			return
		}
	}
}
