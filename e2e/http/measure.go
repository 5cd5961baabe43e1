package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/wait"
)

// connections is how many requests may be under way at once.
const connections = 64

// publish publishes events at a rate, as requests, however long the answers take, and returns how
// long each took from the moment at which it was due, how many were refused, and after what time
// each of the others had its fact.
func (c *cluster) publish(ctx context.Context, rate int, lasts time.Duration) (took []time.Duration, failed int, all time.Duration, err error) {
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
	from, err := c.position(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	go func() { answered <- c.count(counting, from, n) }()
	var sending sync.WaitGroup
	for range connections {
		sending.Go(func() {
			for i := range due {
				if err := c.send(ctx, web, i); err != nil {
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
func (c *cluster) send(ctx context.Context, web *http.Client, i int) error {
	body := fmt.Sprintf(`{"job": "nobody-%d", "workers": {"min": 1, "max": 2}}`, i)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.at.URL+"/api/v1/events", strings.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + c.at.Token, "Content-Type": "application/json", "ce-specversion": "1.0", "ce-id": fmt.Sprint(i), "ce-source": "/client/bench",
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
func (c *cluster) position(ctx context.Context) (uint64, error) {
	if err := c.send(ctx, http.DefaultClient, -1); err != nil {
		return 0, err
	}
	var s struct {
		Facts uint64 `json:"facts"`
	}
	err := wait.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		err := c.client.Get(ctx, "/api/v1/system", &s)
		return s.Facts > 0, err
	})
	return s.Facts, err
}

// count reads the facts that answer events until there are n, or ctx ends.
func (c *cluster) count(ctx context.Context, from uint64, n int) int {
	seen := map[string]bool{}
	for e, err := range c.client.Events(ctx, client.EventsOptions{After: from, Type: "job.rejected"}) {
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
func (c *cluster) follow(ctx context.Context, clients int) (before, after float64, err error) {
	if before, err = c.memory(); err != nil {
		return 0, 0, err
	}
	const facts = 100
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	readers, err := client.New(client.Options{URL: c.at.URL, Token: c.at.Token, HTTP: web})
	if err != nil {
		return 0, 0, err
	}
	from, err := c.position(ctx)
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
		if err := c.send(ctx, http.DefaultClient, i); err != nil {
			return 0, 0, err
		}
	}
	for range clients {
		if err := <-got; err != nil {
			return 0, 0, err
		}
	}
	after, err = c.memory()
	return before, after, err
}
