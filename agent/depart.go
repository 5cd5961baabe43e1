package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/internal/wait"
)

// settleWithin is how long a departing node must have been idle before its agent leaves: work
// assigned just before may still be on its way.
const settleWithin = time.Second

// Depart announces that this node will go away. Its work moves, at a commit if the programs make
// them; when none is left, the agent says goodbye and Run returns. If no other node can take the
// work, it continues here until it is killed, and what is lost then is no counted failure. Only the
// first announcement has an effect.
func (a *Agent) Depart(d events.Departure) {
	d.Reason = cmp.Or(d.Reason, "it was announced")
	d.Reason = limits.Shorten(d.Reason, limits.Text.Max)
	if !a.departing.CompareAndSwap(nil, &d) {
		return
	}
	a.opt.Logger.Info("this node departs: its work moves away", "node", a.opt.Node, "reason", d.Reason, "until", d.Until)
	close(a.departed)
	a.inputs.put(worker.Departing{Departure: d})
	notify(a.hello)
}

// departureKnown records that discovery knows of the departure.
func (a *Agent) departureKnown(h events.NodeHello) {
	if h.Departing != nil && !a.announced.Swap(true) {
		a.inputs.put(worker.Tick{}) // wakes own
	}
}

// ending is the state of the agent's shutdown.
type ending struct {
	a           *Agent
	stop        <-chan struct{}  // request from outside; nil = it was received
	by          <-chan time.Time // when workers that have not moved are stopped
	kill        <-chan time.Time // when they are killed
	since       time.Time        // since when the node has been idle
	asked       bool             // all workers were stopped
	stopNow     bool             // without their grace
	leaveReason string           // reason of the goodbye
}

// over reports whether the agent may leave, and if not, when to check again at the latest.
func (e *ending) over(now time.Time) (bool, time.Duration) {
	a := e.a
	switch {
	case e.asked:
		return a.state.Idle() && a.inputs.empty(), time.Hour
	case a.member != nil || a.departing.Load() == nil || !a.announced.Load() || !a.state.Unused():
		e.since = time.Time{}
		return false, time.Hour
	case e.since.IsZero():
		e.since = now
	}
	left := settleWithin - now.Sub(e.since)
	if left <= 0 {
		e.leaveReason = "departed: " + a.departing.Load().Reason
		e.shut(false)
	}
	return false, max(left, time.Millisecond)
}

// begin handles the request to stop the agent. With workers it begins as a departure.
func (e *ending) begin() {
	e.stop, e.kill = nil, time.After(e.a.opt.Config.StopWithin)
	// An agent that joined a single job has left that job before.
	if e.a.opt.Config.DepartWithin <= 0 || e.a.state.Idle() || e.stopNow || e.a.member != nil {
		e.shut(false)
		return
	}
	e.by = time.After(e.a.opt.Config.DepartWithin)
	e.a.Depart(events.Departure{Reason: "its agent was told to stop", Until: time.Now().Add(e.a.opt.Config.StopWithin)})
}

func (e *ending) shut(now bool) {
	e.asked = true
	e.a.inputs.put(worker.Shutdown{Now: now || e.stopNow})
}

// runLoop runs the machine; only its goroutine uses a.state. It returns when the agent must leave and
// no process is left.
func (a *Agent) runLoop(ctx, work context.Context) (reason string) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	e := &ending{a: a, stop: ctx.Done(), leaveReason: "the agent was stopped"}
	fenced := a.fenced
	for {
		for _, in := range a.inputs.take() {
			a.step(work, in)
		}
		joins := a.sendJoins(work)
		a.show()
		over, wait := e.over(time.Now())
		if over {
			return e.leaveReason
		}
		if d := worker.Deadline(a.state); !d.IsZero() {
			wait = min(wait, time.Until(d))
		}
		if !joins.IsZero() {
			wait = min(wait, time.Until(joins))
		}
		timer.Reset(wait)
		select {
		case <-a.inputs.wake:
		case <-timer.C:
			a.inputs.put(worker.Tick{})
		case <-e.stop:
			e.begin()
		case <-e.by:
			e.shut(false)
		case <-e.kill:
			e.shut(true)
		case <-fenced:
			fenced, e.stop, e.stopNow, e.leaveReason = nil, nil, true, "it was fenced"
			e.shut(true)
		case <-a.stopNow:
			if e.stopNow = true; e.stop == nil {
				e.shut(true)
			}
		case <-work.Done():
			return e.leaveReason
		}
	}
}

// notices watches the sources that may announce this node's end.
func (a *Agent) notices(work context.Context) {
	if f := a.opt.Config.PreemptFile; f != "" {
		a.tasks.Go(func() error { return a.poll(work, func() (events.Departure, bool) { return fileNotice(f) }) })
	}
	if u := a.opt.Config.PreemptURL; u != "" {
		client := &http.Client{Timeout: a.opt.Config.CallTimeout}
		a.tasks.Go(func() error {
			defer client.CloseIdleConnections()
			return a.poll(work, func() (events.Departure, bool) { return urlNotice(work, client, u) })
		})
	}
}

func (a *Agent) poll(work context.Context, check func() (events.Departure, bool)) error {
	for work.Err() == nil {
		if d, ok := check(); ok {
			a.Depart(d)
			return nil
		}
		wait.Sleep(work, a.opt.Config.PreemptEvery)
	}
	return nil
}

func fileNotice(path string) (events.Departure, bool) {
	if _, err := os.Stat(path); err != nil {
		return events.Departure{}, false
	}
	return events.Departure{Reason: "preempted: the file " + path + " has appeared"}, true
}

const maxNotice = 64 << 10

// urlNotice queries a metadata service of a cloud: any 2xx is a notice, except the body FALSE, with
// which Google's answers while there is none (it also requires the header). A JSON object may give
// the time ("time", as Amazon's does).
func urlNotice(ctx context.Context, client *http.Client, url string) (d events.Departure, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return d, false
	}
	req.Header.Set("Metadata-Flavor", "Google")
	res, err := client.Do(req)
	if err != nil {
		return d, false // no answer is no notice
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxNotice))
	if err != nil || res.StatusCode/100 != 2 || strings.EqualFold(strings.TrimSpace(string(body)), "false") {
		return d, false
	}
	var reply struct {
		Time time.Time `json:"time"`
	}
	_ = json.Unmarshal(body, &reply) // most services send no such object
	return events.Departure{Reason: "preempted: told by " + url, Until: reply.Time}, true
}

// preempt handles a notice sent to the socket.
func (a *Agent) preempt(r wire.PreemptRequest) {
	d := events.Departure{Reason: "preempted", Until: r.Until}
	if r.Reason != "" {
		d.Reason += ": " + r.Reason
	}
	a.Depart(d)
}
