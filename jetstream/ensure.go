package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	js "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/backup"
	"github.com/regroup-io/regroup/jetstream/inspect"
	"github.com/regroup-io/regroup/jetstream/shares"
	"github.com/regroup-io/regroup/jetstream/topology"
)

const (
	// ensureLimit limits Ensure and Verify if the context has no deadline.
	ensureLimit = 60 * time.Second
	// electionAttempt is short: a request before a cluster has a leader is never answered.
	electionAttempt = 500 * time.Millisecond
	electionPause   = 100 * time.Millisecond
	// createAttempt is longer: a replicated stream elects its own leader first.
	createAttempt = 3 * time.Second
)

// Ensure creates the streams and buckets, or updates those that differ, with this number of
// replicas (1, 3 or 5). It waits for a cluster that is still electing until ctx ends, or 60 s
// without a deadline. It is idempotent.
func (c *Conn) Ensure(ctx context.Context, replicas int) error {
	return c.ensure(ctx, replicas, false)
}

// EnsureAtLeast is Ensure without reducing the number of replicas.
func (c *Conn) EnsureAtLeast(ctx context.Context, replicas int) error {
	return c.ensure(ctx, replicas, true)
}

func (c *Conn) ensure(ctx context.Context, replicas int, orMore bool) error {
	if replicas != 1 && replicas != 3 && replicas != 5 {
		return errcode.Errorf(errcode.Invalid, "topology: %d replicas: use 1, 3 or 5", replicas)
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	for _, want := range topology.Streams(replicas) {
		if err := c.ensureStream(ctx, want, orMore); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) ensureStream(ctx context.Context, want js.StreamConfig, orMore bool) error {
	have, err := c.lookup(ctx, want.Name)
	if err == nil && orMore {
		want.Replicas = max(want.Replicas, have.Config.Replicas)
	}
	switch {
	case errors.Is(err, errcode.ErrNotFound):
		return c.insist(ctx, "make stream "+want.Name, "", createAttempt, func(ctx context.Context) error {
			_, err := c.js.CreateStream(ctx, want)
			if errors.Is(err, js.ErrStreamNameAlreadyInUse) {
				_, err = c.js.UpdateStream(ctx, want) // another process was faster
			}
			return err
		})
	case err != nil:
		return err
	}
	sameLimits := have.Config.MaxConsumers == want.MaxConsumers && have.Config.ConsumerLimits == want.ConsumerLimits // which Verify does not compare
	if len(topology.Differences(have.Config, want)) == 0 && have.Config.Replicas == want.Replicas && sameLimits {
		return nil
	}
	return c.insist(ctx, "change stream "+want.Name, "", createAttempt, func(ctx context.Context) error {
		_, err := c.js.UpdateStream(ctx, want)
		return err
	})
}

// Verify returns an error with every difference if the streams and buckets are not what this
// version needs; limits of consumers, which Ensure corrects, are not compared. The operator chooses
// the number of replicas, which must be the same for all streams: otherwise a stream with fewer may
// be lost with a server whose loss the others survive. It waits for a cluster that is still
// electing, like Ensure.
func (c *Conn) Verify(ctx context.Context) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	var found []string
	replicas := map[string]int{}
	for _, want := range topology.Streams(1) {
		have, err := c.lookup(ctx, want.Name)
		switch {
		case errors.Is(err, errcode.ErrNotFound):
			found = append(found, "stream "+want.Name+" does not exist")
		case err != nil:
			return err
		default:
			replicas[want.Name] = have.Config.Replicas
			for _, d := range topology.Differences(have.Config, want) {
				found = append(found, "stream "+want.Name+": "+d)
			}
		}
	}
	most := slices.Max(append(slices.Collect(maps.Values(replicas)), 0))
	for _, name := range slices.Sorted(maps.Keys(replicas)) {
		if n := replicas[name]; n < most {
			found = append(found, fmt.Sprintf("stream %s: replicas is %d, want %d as others have", name, n, most))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return errcode.Errorf(errcode.Invalid, "the topology on this NATS server is not what this version needs (regroup init makes it so): %s",
		strings.Join(found, "; "))
}

// lookup returns what a stream's leader says about it; NotFound if there is no such stream.
func (c *Conn) lookup(ctx context.Context, name string) (info *js.StreamInfo, err error) {
	err = c.insist(ctx, "look at stream "+name, infoSubject(name), electionAttempt, func(ctx context.Context) error {
		s, err := c.js.Stream(ctx, name)
		if errors.Is(err, js.ErrStreamNotFound) {
			return errcode.Errorf(errcode.NotFound, "there is no stream %s", name)
		}
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	return info, err
}

// insist repeats a request while the cluster may still be electing, or there is no connection. The
// server does not answer a request without permission either: with the subject of the request that
// is an error at once; empty = it is not checked.
func (c *Conn) insist(ctx context.Context, what, subject string, limit time.Duration, do func(ctx context.Context) error) error {
	for {
		err := c.attempt(ctx, what, subject, limit, do)
		if !errors.Is(err, errcode.ErrUnavailable) || full(err) || !c.state.pause(ctx, electionPause) {
			return err
		}
	}
}

// full distinguishes a lack of space, which is permanent, from a lack of a leader.
func full(err error) bool { return refusedWith(err, apiNoStorage, apiNoResources, apiStoreFailed) }

func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, ensureLimit)
}

// Copies returns how many servers have all data up to now, the minimum over all streams and the
// services' consumers. Consumers count because they get their copies after their stream, and a
// service without its consumer receives nothing.
func (c *Conn) Copies(ctx context.Context) (int, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	least := math.MaxInt
	for _, want := range topology.Streams(1) {
		have, err := c.lookup(ctx, want.Name)
		if err != nil {
			return 0, err
		}
		least = min(least, current(have.Cluster))
		for _, d := range inspect.Durables(want.Name) {
			info, err := brokers{c}.ConsumerInfo(ctx, want.Name, d.Consumer)
			switch {
			case errors.Is(err, js.ErrConsumerNotFound): // its service has not started yet
			case err != nil:
				return 0, err
			default:
				least = min(least, current(info.Cluster))
			}
		}
	}
	return least, nil
}

// current counts the leader and the replicas that have what it has.
func current(c *js.ClusterInfo) int {
	n := 1
	if c != nil {
		for _, r := range c.Replicas {
			if r.Current && !r.Offline {
				n++
			}
		}
	}
	return n
}

// brokers implements broker.Brokers; package inspect asks through it.
type brokers struct{ c *Conn }

// Connected implements broker.Brokers.
func (p brokers) Connected() string { return p.c.nc.ConnectedServerName() }

// Streams implements broker.Brokers.
func (p brokers) Streams(ctx context.Context) []broker.StreamState { return inspect.Streams(ctx, p) }

// StreamInfo implements inspect.Asker.
func (p brokers) StreamInfo(ctx context.Context, stream string) (*js.StreamInfo, error) {
	return p.c.streamInfo(ctx, stream)
}

// ConsumerInfo implements inspect.Asker. A user whose credentials are older than the permission is
// refused once for each connection: the server answers such a request with silence.
func (p brokers) ConsumerInfo(ctx context.Context, stream, name string) (*js.ConsumerInfo, error) {
	subject := js.DefaultAPIPrefix + "CONSUMER.INFO." + stream + "." + name
	if p.c.refused.Since(subject, time.Time{}) {
		return nil, errcode.Errorf(errcode.Invalid, "this NATS user may not ask about the consumer %s: its credentials are older than the permission, rotate them", name)
	}
	return request(ctx, p.c, "look at consumer "+name+" of "+stream, subject, func(ctx context.Context) (*js.ConsumerInfo, error) {
		consumer, err := p.c.js.Consumer(ctx, stream, name)
		if err != nil {
			return nil, err
		}
		return consumer.CachedInfo(), nil
	})
}

// makingLimit is how long a stream may be missing: a server that has just started creates its
// streams after it has begun to listen.
const makingLimit = 3 * time.Second

// Ready waits until the streams that clients use have leaders; NotFound if one does not exist.
func (c *Conn) Ready(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, stream := range []string{events.StreamCommands, events.StreamFacts, events.BucketStream(events.BucketJobs), events.BucketStream(events.BucketNodes)} {
		g.Go(func() error { return c.streamReady(ctx, stream) })
	}
	return g.Wait()
}

func (c *Conn) streamReady(ctx context.Context, stream string) error {
	for began := time.Now(); ; {
		_, err := c.lookup(ctx, stream)
		switch {
		case errors.Is(err, errcode.ErrInvalid): // this user may not ask, but may use the streams
			return nil
		case !errors.Is(err, errcode.ErrNotFound):
			return err
		case time.Since(began) >= makingLimit, !c.state.pause(ctx, electionPause):
			return errcode.Errorf(errcode.NotFound, "there is no stream %s on the NATS server: make the topology with: regroup init", stream)
		}
	}
}

// Backup copies all streams and buckets into a directory (backup.Save).
func (c *Conn) Backup(ctx context.Context, dir, version string) (backup.Manifest, error) {
	return backup.Save(ctx, c.nc, dir, version)
}

// Restore makes the streams and buckets of a backup (backup.Restore).
func (c *Conn) Restore(ctx context.Context, dir string, replicas int) (backup.Manifest, error) {
	return backup.Restore(ctx, c.nc, dir, replicas)
}

// KeepShares deletes consumers of identities that have too many (shares.Keep), until ctx ends.
func (c *Conn) KeepShares(ctx context.Context, log *slog.Logger) error {
	return shares.Keep(ctx, c.nc, c.js, log)
}
