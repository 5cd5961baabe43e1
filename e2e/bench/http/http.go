// Package http measures a gateway. Clients publish CloudEvents over HTTP at a fixed rate, and
// others follow all facts as server-sent events.
package http

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/wait"
)

// gateway is that of a cluster without nodes.
type gateway struct {
	*cluster.Cluster
	at     client.Record
	client *client.Client
}

// Suite measures with a new cluster each time.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	rate := f.Int("rate", 2000, "events a second")
	lasts := f.Duration("for", 10*time.Second, "how long events are published")
	runs := f.Int("runs", 3, "how often, each on a new cluster")
	readers := f.Int("readers", 1000, "clients that follow all facts")
	return func(ctx context.Context, r *report.Report) error {
		t := &report.Table{}
		for run := range *runs {
			if err := in(ctx, r.Bin, func(g *gateway) error {
				took, refused, all, err := g.publish(ctx, *rate, *lasts)
				what := fmt.Sprintf("run %d: %d events a second for %v; %d refused by HTTP; after %.0f s each had its fact", run+1, *rate, *lasts, refused, all.Seconds())
				r.Say("%s", what)
				t.Times(what, took, "p99 50 ms")
				return err
			}); err != nil {
				return err
			}
		}
		return in(ctx, r.Bin, func(g *gateway) error {
			before, after, err := g.follow(ctx, *readers)
			if err != nil {
				return err
			}
			return r.Section("Over HTTP", fmt.Sprintf(`A broker with files, one replica of each service and a gateway are processes of their own on this machine,
and so are the clients, which share its cores with them. Each event is a request (job.scale, binary mode) that is answered when the broker has stored it; the registry refuses it with a fact. Times
are from the moment at which an event was due to its answer.

%s
%d clients that follow all facts as server-sent events, each of which got 100 of them: the gateway takes %.0f MiB, %.0f MiB before they came (goal: at most 200 MiB).
`, t, *readers, after, before))
		})
	}
}

// in measures with the gateway of a new cluster, in which all services answer.
func in(ctx context.Context, bin string, measure func(*gateway) error) error {
	c, err := cluster.Start(ctx, cluster.Options{Bin: bin, Name: "http", Gateway: true})
	if err != nil {
		return err
	}
	g := &gateway{Cluster: c}
	if err = g.ready(ctx); err == nil {
		err = measure(g)
	}
	return errors.Join(err, c.Close())
}

func (g *gateway) ready(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return cluster.Until(limit, func() (ok bool, err error) {
		if g.at, err = client.Find(filepath.Join(g.Processes.Dir, "state-gateway")); err != nil {
			return false, err // it starts
		}
		if g.client, err = client.New(client.Options{URL: g.at.URL, Token: g.at.Token, Patience: -1}); err != nil {
			return false, err
		}
		var s struct {
			Ready    string `json:"ready"`
			Services []struct {
				Answers bool `json:"answers"`
			} `json:"services"`
		}
		err = g.client.Get(limit, "/api/v1/system", &s)
		ok = err == nil && s.Ready == "ok"
		for _, x := range s.Services {
			ok = ok && x.Answers
		}
		return ok, err
	})
}

// memory is the resident size of the gateway, in MiB.
func (g *gateway) memory() (float64, error) {
	used, err := cluster.Used(g.PIDs("gateway")...)
	return used.Now, err
}

// connections is how many requests may be under way at once.
const connections = 64

// publish publishes events at a rate, as requests, however long the answers take, and returns how
// long each took from the moment at which it was due, how many were refused, and after what time
// each of the others had its fact.
func (g *gateway) publish(ctx context.Context, rate int, lasts time.Duration) (took []time.Duration, failed int, all time.Duration, err error) {
	n := int(lasts.Seconds() * float64(rate))
	took = make([]time.Duration, n)
	due := make(chan int, n)
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections}}
	defer web.CloseIdleConnections()
	var refused atomic.Int64
	began := time.Now().Add(100 * time.Millisecond)
	at := func(i int) time.Time { return began.Add(time.Duration(i) * time.Second / time.Duration(rate)) }
	answered := make(chan int, 1)
	counting, stop := context.WithCancel(ctx)
	defer stop()
	from, err := g.position(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	go func() { answered <- g.count(counting, from, n) }()
	var sending sync.WaitGroup
	for range connections {
		sending.Go(func() {
			for i := range due {
				if err := g.send(ctx, web, i); err != nil {
					refused.Add(1)
				}
				took[i] = time.Since(at(i))
			}
		})
	}
	for i := range n {
		wait.Sleep(ctx, time.Until(at(i)))
		due <- i
	}
	close(due)
	sending.Wait()
	within, cancel := context.WithTimeout(ctx, 5*time.Minute) // the registry answers in its own time
	defer cancel()
	facts := 0
	select {
	case facts = <-answered:
	case <-within.Done():
		stop()
		facts = <-answered
	}
	if want := n - int(refused.Load()); facts != want {
		return nil, 0, 0, fmt.Errorf("%d facts answered %d events that were stored", facts, want)
	}
	return took, int(refused.Load()), time.Since(began), ctx.Err()
}

// send publishes one event.
func (g *gateway) send(ctx context.Context, web *http.Client, i int) error {
	body := fmt.Sprintf(`{"job": "nobody-%d", "workers": {"min": 1, "max": 2}}`, i)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.at.URL+"/api/v1/events", strings.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + g.at.Token, "Content-Type": "application/json", "ce-specversion": "1.0", "ce-id": fmt.Sprint(i), "ce-source": "/client/bench",
		"ce-type": string(events.JobScale{}.Type()),
	} {
		req.Header.Set(name, value)
	}
	res, err := web.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		return errors.New(res.Status)
	}
	return nil
}

// position is that of the newest fact, of which there is at least one afterwards.
func (g *gateway) position(ctx context.Context) (uint64, error) {
	if err := g.send(ctx, http.DefaultClient, -1); err != nil {
		return 0, err
	}
	var s struct {
		Facts uint64 `json:"facts"`
	}
	err := wait.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		err := g.client.Get(ctx, "/api/v1/system", &s)
		return s.Facts > 0, err
	})
	return s.Facts, err
}

// count reads the facts that answer events until there are n, or ctx ends.
func (g *gateway) count(ctx context.Context, from uint64, n int) int {
	seen := map[string]bool{}
	for e, err := range g.client.Events(ctx, client.EventsOptions{After: from, Type: "job.rejected"}) {
		if err != nil {
			break
		}
		if r, ok := e.Body.(events.JobRejected); ok {
			seen[r.Command] = true
		}
		if len(seen) == n {
			break
		}
	}
	return len(seen)
}

// follow lets clients follow all facts, publishes some, and returns the memory of the gateway
// before the clients came and after all have got the facts.
func (g *gateway) follow(ctx context.Context, clients int) (before, after float64, err error) {
	if before, err = g.memory(); err != nil {
		return 0, 0, err
	}
	const facts = 100
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	readers, err := client.New(client.Options{URL: g.at.URL, Token: g.at.Token, HTTP: web})
	if err != nil {
		return 0, 0, err
	}
	from, err := g.position(ctx)
	if err != nil {
		return 0, 0, err
	}
	got := make(chan error, clients)
	leave := make(chan struct{})
	var reading sync.WaitGroup
	for range clients {
		reading.Go(func() {
			n := 0
			for _, err := range readers.Events(ctx, client.EventsOptions{After: from}) {
				if n++; err != nil || n == facts {
					got <- err
					<-leave
					return
				}
			}
			got <- ctx.Err()
		})
	}
	defer reading.Wait()
	defer close(leave)
	for i := range facts {
		if err := g.send(ctx, http.DefaultClient, i); err != nil {
			return 0, 0, err
		}
	}
	for range clients {
		if err := <-got; err != nil {
			return 0, 0, err
		}
	}
	after, err = g.memory()
	return before, after, err
}
