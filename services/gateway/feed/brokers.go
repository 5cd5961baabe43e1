package feed

import (
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// observeEvery is the pause between two rounds of requests to the brokers, whatever is asked for
// they gave.
const observeEvery = 5 * time.Second

// Brokers returns the newest report about the brokers.
func (f *Feed) Brokers() brokers.Report {
	if r := f.brokers.Load(); r != nil {
		return *r
	}
	return brokers.Report{Brokers: []brokers.Broker{}, Streams: []broker.StreamState{}, Findings: []brokers.Finding{}}
}

// observeBrokers observes the brokers until ctx ends, and tells when what needs attention changes.
func (f *Feed) observeBrokers(ctx context.Context) error {
	o := brokers.NewObserver(f.ports.Brokers)
	for {
		before, r := f.Brokers(), o.Observe(ctx, time.Now)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.brokers.Store(&r)
		if !slices.EqualFunc(before.Findings, r.Findings, func(a, b brokers.Finding) bool { return a.Key == b.Key }) {
			f.change("brokers", "")
		}
		if !wait.Sleep(ctx, observeEvery) {
			return context.Cause(ctx)
		}
	}
}
