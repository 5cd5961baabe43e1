package gateway

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// Seen is what the services say about a job, for a page.
type Seen struct {
	Job       events.JobView
	Round     events.RoundView
	Placement events.PlacementView
	Pool      events.PoolView
	Nodes     []events.NodeView
	Silent    []string       // services of which no replica answers
	Facts     []events.Event // only for pages that want them
	Now       time.Time
}

// Page is a resource of a job that is made of what the services say.
type Page struct {
	Name, What string
	facts      bool // it wants the facts
	typ        reflect.Type
	of         func(Seen) any
}

// NewPage returns a page at /api/v1/jobs/{job}/NAME. facts = it wants every stored fact of the job.
func NewPage[T any](name, what string, facts bool, of func(Seen) T) Page {
	return Page{name, what, facts, reflect.TypeFor[T](), func(s Seen) any { return of(s) }}
}

func (g *Gateway) page(p Page) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, _, err := g.job(r)
		if err != nil {
			return err
		}
		s, err := g.seen(r.Context(), v, p.facts)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, p.of(s))
	}
}

func (g *Gateway) seen(ctx context.Context, v events.JobView, facts bool) (Seen, error) {
	pool := g.feed.Pool()
	s := Seen{Job: v, Round: g.feed.Round(v.Job), Placement: pool.Jobs[v.Job], Pool: pool, Nodes: g.feed.Nodes(), Now: g.Now()}
	if !facts {
		s.Silent = g.feed.Silent(ctx)
		return s, nil
	}
	err := g.feed.Stored(ctx, v.Job, 0, func(i feed.Item) error {
		s.Facts = append(s.Facts, i.Event)
		return nil
	})
	return s, err
}
