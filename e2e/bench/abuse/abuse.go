// Package abuse measures what identities cost that do their worst. A job of four workers trains on
// two nodes of a cluster with identities and TLS: for a while undisturbed, then beside a viewer, a
// submitter and an agent that take what they can get, one after the other. It fails if the memory
// of the broker grows, or steps take, more than the goals say. The agents and workers run on other
// cores than everything else, as on machines of their own, if there are several.
package abuse

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/record"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
)

// Goals.
const (
	growth   = 100.0 // MiB
	slowdown = 1.10
)

// row is what one part of the measurement has shown.
type row struct {
	who          string
	before, most float64 // memory of the broker, MiB
	p99          time.Duration
	took         string // what the identity got
}

// lab is the cluster with its job.
type lab struct {
	*cluster.Cluster
	run          *cluster.Run
	theirs, ours string // cores of agents and workers, and of the rest; empty = all
}

// Suite measures one identity after the other.
func Suite(f *flag.FlagSet) func(context.Context, *report.Report) error {
	each := f.Duration("for", time.Minute, "how long the job trains undisturbed, and beside each of the three")
	return func(ctx context.Context, r *report.Report) (err error) {
		l := &lab{}
		if err := l.start(ctx, r.Bin); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		apart := ""
		if l.theirs != "" {
			apart = ", the agents and workers on cores " + l.theirs + ", all others on " + l.ours
		}
		var text strings.Builder
		fmt.Fprintf(&text, "A broker with identities and TLS, the services and two agents are processes of their own on this\n"+
			"machine%s; a job of four workers makes steps of 10 ms. One identity after the other does its worst for %s: consumers, subscriptions,\nconnections, large messages and requests, as many as it gets.\n\n"+
			"| beside the job | broker, MiB | most, MiB | growth, MiB | goal | step p99, ms | of undisturbed | goal | it got |\n|---|---|---|---|---|---|---|---|---|\n", apart, *each)
		var calm row
		var missed []error
		for _, who := range []access.Identity{
			{}, {Role: access.RoleViewer, Name: "eve"}, {Role: access.RoleSubmitter, Name: "sue"}, {Role: access.RoleAgent, Name: "mallory", Node: "mallory"},
		} {
			one, err := l.measure(ctx, who, *each)
			if err != nil {
				return err
			}
			r.Say("%s: %.0f MiB, p99 %s, %s", one.who, one.most, one.p99, one.took)
			if who.Role == "" {
				calm = one
			}
			grown, slower := one.most-calm.before, float64(one.p99)/float64(calm.p99)
			fmt.Fprintf(&text, "| %s | %.0f | %.0f | %.0f | %.0f | %.1f | %.2f | %.2f | %s |\n", one.who, one.before, one.most, grown, growth, report.MS(one.p99), slower, slowdown, one.took)
			if grown > growth {
				missed = append(missed, fmt.Errorf("%s: the broker has grown by %.0f MiB, at most %.0f are wanted", one.who, grown, growth))
			}
			if slower > slowdown {
				missed = append(missed, fmt.Errorf("%s: the 99th percentile of steps is %.2f of the undisturbed one, at most %.2f is wanted", one.who, slower, slowdown))
			}
		}
		return errors.Join(append(missed, r.Section("Identities that do their worst", text.String()))...)
	}
}

func (l *lab) start(ctx context.Context, bin string) (err error) {
	if n := runtime.NumCPU(); n > 1 {
		if _, err := exec.LookPath("taskset"); err == nil {
			l.theirs, l.ours = fmt.Sprintf("0-%d", n/2-1), fmt.Sprintf("%d-%d", n/2, n-1)
			if _, err := cluster.Output(exec.CommandContext(ctx, "taskset", "-a", "-p", "-c", l.ours, strconv.Itoa(os.Getpid()))); err != nil {
				return err
			}
		}
	}
	l.Cluster, err = cluster.Start(ctx, cluster.Options{
		Bin: bin, Name: "measure", Nodes: 2, Slots: 2, Guarded: true, Identities: []string{"viewer eve", "submitter sue", "agent mallory"},
		Place: func(process string) (at cluster.Place) {
			if l.theirs != "" && strings.HasPrefix(process, "node-") {
				at.Run = []string{"taskset", "-c", l.theirs}
			}
			return at // the others run where this process does
		},
	})
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if l.run, err = l.Train(within, cluster.Training{Name: "train", Workers: spec.Workers{Min: 4, Max: 4}}); err == nil {
		_, err = l.run.Trains(within, 0, 4)
	}
	if err != nil {
		return errors.Join(err, errors.New(l.Processes.Logs(500)), l.Close())
	}
	return nil
}

// measure measures the job beside an identity that does its worst; the zero value is nobody.
func (l *lab) measure(ctx context.Context, who access.Identity, each time.Duration) (row, error) {
	r := row{who: "nobody", took: "nothing"}
	if who.Role != "" {
		r.who = string(who.Role)
	}
	limit, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	ended := make(chan string, 1)
	go func() {
		if who.Role == "" {
			<-limit.Done()
			ended <- r.took
			return
		}
		ended <- l.worst(limit, who)
	}()
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		used, err := cluster.Used(l.PIDs("broker-1")...)
		if err != nil {
			return r, fmt.Errorf("the broker has ended: %w", err)
		}
		if r.before == 0 {
			r.before = used.Now
		}
		r.most = max(r.most, used.Now)
		select {
		case r.took = <-ended:
			over = true
		case <-tick.C:
		}
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	h, err := record.Read(l.run.Dir)
	if err != nil {
		return r, err
	}
	took := record.Durations(h.Steps(), began, time.Now())
	if len(took) < 100 || len(h.Generations) != 1 {
		return r, fmt.Errorf("%s: the job has made %d steps in %s, in %d generations", r.who, len(took), each, len(h.Generations))
	}
	r.p99 = report.Quantile(took, 0.99)
	return r, nil
}

// taken counts what an identity got.
type taken struct{ connections, subscriptions, consumers, messages, requests atomic.Int64 }

func (t *taken) String() string {
	return fmt.Sprintf("%d connections, %d subscriptions, %d consumers, %d messages and %d answers in turn", t.connections.Load(), t.subscriptions.Load(), t.consumers.Load(), t.messages.Load(), t.requests.Load())
}

// worst takes what an identity can get until ctx ends, and returns how much that was.
func (l *lab) worst(ctx context.Context, who access.Identity) string {
	got := &taken{}
	var all sync.WaitGroup
	for _, do := range []func(context.Context, access.Identity, *taken){l.connect, l.subscribe, l.consume, l.publish, l.ask} {
		all.Go(func() { do(ctx, who, got) })
	}
	all.Wait()
	return got.String()
}

func (l *lab) dial(who access.Identity) (*nats.Conn, error) {
	credentials, authority := l.Credentials(who.Name)
	return nats.Connect(l.URL, nats.UserCredentials(credentials), nats.RootCAs(authority),
		nats.CustomInboxPrefix(who.InboxPrefix()), nats.NoReconnect(), nats.Timeout(5*time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

// again calls fn with a connection until ctx ends, with a new one once fn returns.
func (l *lab) again(ctx context.Context, who access.Identity, fn func(*nats.Conn)) {
	for ctx.Err() == nil {
		nc, err := l.dial(who)
		if err != nil {
			wait.Sleep(ctx, 50*time.Millisecond) // it was refused
			continue
		}
		fn(nc)
		nc.Close()
	}
}

// connect opens connections and keeps them.
func (l *lab) connect(ctx context.Context, who access.Identity, got *taken) {
	var all []*nats.Conn
	for ctx.Err() == nil {
		if nc, err := l.dial(who); err == nil {
			all = append(all, nc)
			got.connections.Add(1)
		}
	}
	for _, nc := range all {
		nc.Close()
	}
}

// subscribe makes subscriptions.
func (l *lab) subscribe(ctx context.Context, who access.Identity, got *taken) {
	l.again(ctx, who, func(nc *nats.Conn) {
		for n := 0; ctx.Err() == nil && nc.IsConnected(); n++ {
			if _, err := nc.SubscribeSync(fmt.Sprint(who.InboxPrefix(), ".", n)); err != nil {
				return
			}
			got.subscriptions.Add(1)
			if n%64 == 0 && nc.FlushTimeout(time.Second) != nil {
				return
			}
		}
	})
}

// consume makes durable consumers, several requests at a time.
func (l *lab) consume(ctx context.Context, who access.Identity, got *taken) {
	streams := []string{events.StreamFacts, events.StreamLogs, events.StreamSpans, events.BucketStream(events.BucketJobs), events.BucketStream(events.BucketNodes)}
	var n atomic.Int64
	l.again(ctx, who, func(nc *nats.Conn) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil && nc.IsConnected() {
					i := n.Add(1)
					stream, name := streams[int(i)%len(streams)], fmt.Sprint("flood-", i)
					create := fmt.Sprintf(`{"stream_name":%q,"config":{"name":%[2]q,"durable_name":%[2]q,"ack_policy":"none"}}`, stream, name)
					m, err := nc.Request("$JS.API.CONSUMER.CREATE."+stream+"."+name, []byte(create), time.Second)
					if err != nil {
						continue
					}
					if !strings.Contains(string(m.Data), `"error"`) {
						got.consumers.Add(1)
					}
				}
			})
		}
		all.Wait()
	})
}

// publish sends what it may, as large as it may.
func (l *lab) publish(ctx context.Context, who access.Identity, got *taken) {
	may, err := access.Of(who)
	if err != nil {
		return
	}
	var subjects []string
	for _, s := range []string{
		events.LogSubject("flood", string(who.Node), "0"), events.SpanSubject(events.ServiceAgent), events.HeartbeatSubject(who.Node), events.NoticeSubject("flood"),
		events.ProgressSubject("flood"), events.FactSubject(events.WorkerStarted{}.Type(), "flood"), events.Submitter{Name: who.Name}.Subject(events.JobSubmit{}.Type()),
		events.RequestSubject(events.ServiceRegistry, events.VerbAlive),
	} {
		if may.MayPublish(s) {
			subjects = append(subjects, s)
		}
	}
	body := make([]byte, min(who.Amounts().Payload, 60<<10))
	l.again(ctx, who, func(nc *nats.Conn) {
		for n := 0; ctx.Err() == nil && nc.IsConnected(); n++ {
			if nc.Publish(subjects[n%len(subjects)], body) != nil {
				return
			}
			got.messages.Add(1)
			if n%16 == 0 && nc.FlushTimeout(5*time.Second) != nil {
				return
			}
		}
	})
}

// ask asks the API of JetStream.
func (l *lab) ask(ctx context.Context, who access.Identity, got *taken) {
	l.again(ctx, who, func(nc *nats.Conn) {
		for ctx.Err() == nil && nc.IsConnected() {
			if _, err := nc.Request("$JS.API.STREAM.INFO."+events.StreamFacts, nil, time.Second); err == nil {
				got.requests.Add(1)
			}
		}
	})
}
