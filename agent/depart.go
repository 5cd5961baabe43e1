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
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// idleBeforeLeaving is how long a departing node must have been idle before its agent leaves: work
// assigned just before may still be on its way.
const idleBeforeLeaving = time.Second

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
	wait.Notify(a.hello)
}

// departureKnown records that discovery knows of the departure.
func (a *Agent) departureKnown(h events.NodeHello) {
	if h.Departing != nil && !a.announced.Swap(true) {
		a.inputs.put(worker.Tick{}) // wakes runLoop
	}
}

// notices watches the sources that may announce this node's end.
func (a *Agent) notices(work context.Context) {
	if f := a.opt.Config.PreemptFile; f != "" {
		a.tasks.Go(func() error { return a.poll(work, func() (events.Departure, bool) { return fileNotice(f) }) })
	}
	if u := a.opt.Config.PreemptURL; u != "" {
		client := &http.Client{Timeout: callTimeout}
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
func (a *Agent) preempt(_ string, r workerprotocol.PreemptRequest) error {
	d := events.Departure{Reason: "preempted", Until: r.Until}
	if r.Reason != "" {
		d.Reason += ": " + r.Reason
	}
	a.Depart(d)
	return nil
}
