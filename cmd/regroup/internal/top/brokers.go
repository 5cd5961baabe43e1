package top

import (
	"bytes"
	"fmt"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// drawBrokers draws what the brokers say about themselves: what needs attention, each of them, and
// what the services have still to handle.
func drawBrokers(p screen.Palette, w *bytes.Buffer, r brokers.Report) error {
	fmt.Fprintln(w)
	for _, f := range r.Findings {
		text := "! " + f.Text
		if f.Severity == "error" {
			text = p.Bad(text)
		}
		fmt.Fprintln(w, text)
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(w)
	}
	err := screen.TableOf(w, p, []string{"BROKER", "STATE", "LEADS", "COPIES", "LAG", "HEARD"}, r.Brokers, func(b brokers.Broker) []string {
		seen := "never"
		switch {
		case b.Leads > 0:
			seen = "answers"
		case b.SeenMS != nil:
			seen = view.MS(*b.SeenMS) + " ago"
		}
		return []string{b.Broker, p.State(string(b.State)), fmt.Sprint(b.Leads), fmt.Sprint(b.Copies), fmt.Sprint(b.Lag), seen}
	})
	backlogs := r.Backlogs()
	if err != nil || len(backlogs) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return screen.TableOf(w, p, []string{"SERVICE", "STREAM", "WAITING", "AGAIN"}, backlogs, func(b brokers.Backlog) []string {
		waiting, again := fmt.Sprint(b.Backlog()), fmt.Sprint(b.Redelivered)
		if b.Unknown != "" {
			waiting, again = "unknown", "unknown"
		}
		return []string{b.Service, b.Stream, waiting, again}
	})
}
