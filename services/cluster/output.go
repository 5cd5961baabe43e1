package cluster

import (
	"cmp"
	"context"
	"errors"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// OutputOf selects the stored output of a job from a chunk on, of one node or, if that is empty, of
// all.
func OutputOf(job ident.JobID, node ident.NodeID, from uint64) broker.Follow {
	return broker.Follow{
		Stream: events.StreamLogs, Subjects: []string{events.LogSubject(job, cmp.Or(string(node), "*"), "*")},
		Start: broker.FromSequence, Sequence: max(1, from),
	}
}

// LogsFrom selects the output to read.
type LogsFrom struct {
	Node   ident.NodeID // empty = all
	After  uint64       // only chunks after this sequence; 0 = from the first
	Follow bool         // continue with new lines
}

// Logs calls fn with the lines of a job's output in the order in which they were stored. It blocks
// until all stored lines were seen or, with Follow, until fn returns an error; ErrStop ends it
// without one. Without Follow open lines are left out, but those that nothing has replaced come
// last.
func (c *Client) Logs(ctx context.Context, job ident.JobID, from LogsFrom, fn func(view.Line) error) error {
	var unfinished output.Unfinished[view.Line]
	stopped := false
	err := c.read(ctx, *c.at.Load(), OutputOf(job, from.Node, from.After+1), !from.Follow, func(s broker.Stored) error {
		for _, l := range view.Lines(job, s) {
			c.showLine(&l)
			if !from.Follow {
				unfinished.Take(l.Source(), l.Open, l)
				if l.Open {
					continue
				}
			}
			if err := fn(l); err != nil {
				stopped = true
				return err
			}
		}
		return nil
	})
	if err != nil || stopped {
		return err
	}
	for _, l := range unfinished.All() {
		if err := fn(l); errors.Is(err, ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// showLine is show, but leaves the colours of the text as they are.
func (c *Client) showLine(l *view.Line) {
	if !c.Exact {
		text := escape.Output(l.Text, true)
		c.show(l)
		l.Text = text
	}
}
