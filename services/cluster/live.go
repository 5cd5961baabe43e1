package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

const (
	liveWithin = time.Second // timeout of a reply from a service's memory
	liveAtOnce = 500         // maximum number of jobs in one request
)

// Live updates the views of running jobs with the registry's progress since it stored them, which
// it does at intervals. Without a reply for one of them, heard is false, and it is unchanged: a job
// may be further than its view says, and than it was shown before.
func (c *Client) Live(ctx context.Context, views ...*events.JobView) (heard bool) {
	at := map[ident.JobID]*events.JobView{}
	ids := map[*Server][]ident.JobID{}
	for _, v := range views {
		if v.State == events.JobStateRunning {
			at[v.Job] = v
			s := c.home(v.Job)
			ids[s] = append(ids[s], v.Job)
		}
	}
	var asked []*Server
	for s := range ids {
		asked = append(asked, s)
	}
	answers := make([][]events.ProgressAnswer, len(asked))
	errs := make([]error, len(asked))
	var g errgroup.Group
	for i, s := range asked {
		g.Go(func() error {
			if s.Idle {
				errs[i] = errEnded
				return nil
			}
			for chunk := range slices.Chunk(ids[s], liveAtOnce) {
				var h events.ProgressAnswer
				if h, errs[i] = request[events.ProgressAnswer](ctx, s.Ports.Calls, events.ServiceRegistry, events.VerbProgress, events.ProgressQuery{Jobs: chunk}); errs[i] != nil {
					return nil // its other jobs are not asked for
				}
				answers[i] = append(answers[i], h)
			}
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	for _, answers := range slices.Concat(answers...) {
		c.show(&answers)
		for id, h := range answers.Jobs {
			if v := at[id]; v != nil && h.Generation == v.Generation {
				progressed(v, h)
			}
		}
	}
	return errors.Join(errs...) == nil
}

func progressed(v *events.JobView, h events.JobProgress) {
	if h.Step > 0 && (h.Step > v.Step || !h.At.Before(v.StepAt)) { // another replica may have heard and stored more
		v.Step, v.StepAt = h.Step, h.At
	}
	v.Reported, _ = events.MergeMetrics(v.Reported, h.Reported)
	v.Redundancy = events.NewerRedundancy(v.Redundancy, h.Redundancy)
}

// Silent returns the services without a replica that replies, in the order of the control flow, on
// the server of the latest job.
func (c *Client) Silent(ctx context.Context) []string { return c.at.Load().silent(ctx) }

func (s Server) silent(ctx context.Context) []string {
	if s.Idle {
		return events.ServiceNames()
	}
	return Silent(ctx, s.Ports.Calls)
}

// Silent asks all services at once, and returns those of which no replica answers, in the order of
// the control flow.
func Silent(ctx context.Context, calls broker.Calls) (silent []string) {
	all := events.ServiceNames()
	answers := make([]error, len(all))
	var g errgroup.Group
	for i, service := range all {
		g.Go(func() error {
			_, answers[i] = request[events.Alive](ctx, calls, service, events.VerbAlive, events.Ping{})
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	for i, service := range all {
		if unserved(answers[i]) {
			silent = append(silent, service)
		}
	}
	return silent
}

// unserved reports whether an error says that no replica of a service answers.
func unserved(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || (err != nil && errcode.Of(err) == errcode.Unavailable)
}

func request[R events.Body](ctx context.Context, calls broker.Calls, service, verb string, query events.Body) (R, error) {
	var none R
	data, err := bodies.Encode(query)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveWithin)
	defer cancel()
	answer, err := calls.Call(ctx, events.RequestSubject(service, verb), data)
	if err != nil {
		return none, err
	}
	return bodies.Decode[R](answer)
}

// Brokers asks the brokers of the server that is used about themselves.
func (c *Client) Brokers() broker.Brokers { return c.at.Load().Ports.Brokers }
