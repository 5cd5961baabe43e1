// Package top is regroup top: one frame of it, and the live view on a terminal, which shows what it
// is given and asks for more through a Source.
package top

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// Overview is one frame, and the JSON form of the command.
type Overview struct {
	At     time.Time         `json:"at"`
	Jobs   []view.Job        `json:"jobs"` // that have not ended
	Nodes  []events.NodeView `json:"nodes"`
	Silent []string          `json:"silent"` // services without a replica that answers

	Brokers brokers.Report `json:"brokers"`
}

// progress is where a job was in the frame before.
type progress struct {
	step uint64
	at   time.Time
}

// measure updates the rates of jobs, in steps per second, where a newer step is known.
func measure(o Overview, before map[ident.JobID]progress, rates map[ident.JobID]float64) {
	for _, v := range o.Jobs {
		last, now := before[v.Job], progress{v.Step, v.StepAt}
		took := now.at.Sub(last.at).Seconds()
		switch {
		case now.step < last.step: // it went back to a commit
			delete(rates, v.Job)
		case last.step > 0 && now.step > last.step && took > 0:
			rates[v.Job] = float64(now.step-last.step) / took
		}
		before[v.Job] = now
	}
}

// header are the columns of jobs; they are sorted by the keys 1 to 8.
var header = []string{"JOB", "STATE", "WORKERS", "GEN", "STEP", "STEPS/S", "LAST INCIDENT", "AGE"}

// jobCells are the cells of a job, with the reason of its state as one more. No rate is known of a
// job of which two steps were not seen.
func jobCells(p screen.Palette, v events.JobView, rates map[ident.JobID]float64, now time.Time) []string {
	c := screen.JobCells(p, v, now)
	rate := "-"
	if r, ok := rates[v.Job]; ok {
		rate = fmt.Sprintf("%.1f", r)
	}
	c = append(c[:5:5], rate, lastIncident(v), c[6])
	if reason := screen.JobReason(p, v); reason != "" {
		c = append(c, reason)
	}
	return c
}

func nodeCells(p screen.Palette, n events.NodeView, now time.Time) []string {
	since := "-"
	if !n.Since.IsZero() {
		since = view.Span(now.Sub(n.Since))
	}
	return []string{string(n.Node), p.State(string(n.State)), fmt.Sprintf("%d/%d", n.SchedulableSlots(), n.Slots), since}
}

var nodeHeader = []string{"NODE", "STATE", "SLOTS", "SINCE"}

// summary is the first line: the time, and how much there is of what.
func (o Overview) summary() string {
	ready := 0
	for _, n := range o.Nodes {
		if n.Schedulable() {
			ready++
		}
	}
	services := "all services answer"
	if len(o.Silent) > 0 {
		services = "no answer from " + strings.Join(o.Silent, ", ")
	}
	return fmt.Sprintf("%s  %s, %d of %s ready for work, %s", o.At.Format(time.TimeOnly), english.Plural(len(o.Jobs), "job"), ready, english.Plural(len(o.Nodes), "node"), services)
}

// Draw writes one frame.
func Draw(w io.Writer, p screen.Palette, o Overview) error {
	var b bytes.Buffer
	b.WriteString(o.summary() + "\n\n")
	if err := screen.TableOf(&b, p, header, o.Jobs, func(v view.Job) []string { return jobCells(p, v.JobView, nil, o.At) }); err != nil {
		return err
	}
	b.WriteString("\n")
	if err := screen.TableOf(&b, p, nodeHeader, o.Nodes, func(n events.NodeView) []string { return nodeCells(p, n, o.At) }); err != nil {
		return err
	}
	if err := drawBrokers(p, &b, o.Brokers); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// lastIncident names the open incident of a job, or its newest one with how long it took.
func lastIncident(v events.JobView) string {
	if v.OpenIncident != nil {
		return string(v.OpenIncident.Cause.Kind) + ", open"
	}
	if len(v.Incidents) == 0 {
		return "-"
	}
	last := v.Incidents[len(v.Incidents)-1]
	return fmt.Sprintf("%s, %s", last.Cause.Kind, view.MS(last.TotalMS))
}
