package gateway

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// metricJobs bounds the jobs that have series of their own: the newest that have not ended.
const metricJobs = 100

// metrics are what Prometheus reads. What the views say is computed when it asks; what happens is
// counted since this process began.
type metrics struct {
	gateway  *Gateway
	registry *prometheus.Registry
	counted  *prometheus.Registry // facts alone

	facts      *prometheus.CounterVec
	recoveries *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	stepsLost  prometheus.Counter
	requests   *prometheus.CounterVec
	latency    prometheus.Histogram
}

// recoveryBuckets are in seconds: a recovery in the process takes tens of milliseconds, one by
// restart seconds.
var recoveryBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

func newMetrics(g *Gateway) *metrics {
	m := &metrics{gateway: g, registry: prometheus.NewRegistry(), counted: prometheus.NewRegistry()}
	m.facts = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "regroup_events_published_total", Help: "Facts that were published, by type, since this gateway began."}, []string{"type"})
	m.recoveries = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "regroup_recoveries_total", Help: "Incidents that were closed, by cause."}, []string{"cause"})
	m.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "regroup_recovery_duration_seconds", Help: "Phases of incidents that were not planned; total is their sum.", Buckets: recoveryBuckets}, []string{"phase"})
	m.stepsLost = prometheus.NewCounter(prometheus.CounterOpts{Name: "regroup_steps_lost_total", Help: "Steps that incidents have lost, as far as they are known."})
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "regroup_http_requests_total", Help: "Requests that were answered, by status."}, []string{"code"})
	m.latency = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "regroup_http_request_duration_seconds", Help: "Time to answer a request; streams do not count.", Buckets: prometheus.DefBuckets})
	m.counted.MustRegister(m.facts)
	m.registry.MustRegister(m.facts, m.recoveries, m.duration, m.stepsLost, m.requests, m.latency, m)
	m.registry.MustRegister(brokers.Collector(g.feed.Brokers))
	return m
}

var (
	descBuild      = prometheus.NewDesc("regroup_build_info", "Version of this gateway.", []string{"version", "go"}, nil)
	descJobs       = prometheus.NewDesc("regroup_jobs", "Jobs by state.", []string{"state"}, nil)
	descWorkers    = prometheus.NewDesc("regroup_job_workers", "Workers of a job that has not ended, by state.", []string{"job", "state"}, nil)
	descGeneration = prometheus.NewDesc("regroup_job_generation", "Generation of a job that has not ended.", []string{"job"}, nil)
	descStep       = prometheus.NewDesc("regroup_job_step", "Newest step of a job that has not ended.", []string{"job"}, nil)
	descGoodput    = prometheus.NewDesc("regroup_job_goodput_ratio", "Part of its observed time that brought a job forward; an upper bound where lost steps are not all known.", []string{"job"}, nil)
	descCommitAge  = prometheus.NewDesc("regroup_job_commit_age_seconds", "Time since the newest whole commit of a job that has not ended was made, of those that were reported.", []string{"job"}, nil)
	descReportAge  = prometheus.NewDesc("regroup_job_redundancy_report_age_seconds", "Time since a worker of a job that has not ended has reported what its newest whole commit survives.", []string{"job"}, nil)
	descLosses     = prometheus.NewDesc("regroup_job_losses_survived", "Workers that may be lost, whichever they are, without losing the newest whole commit of a job; no series while it is unknown.", []string{"job"}, nil)
	descNodeLosses = prometheus.NewDesc("regroup_job_node_losses_survived", "Nodes that may be lost with all of their workers, whichever they are, without losing the newest whole commit of a job; no series while it is unknown.", []string{"job"}, nil)
	descCheckpoint = prometheus.NewDesc("regroup_job_checkpoint_age_seconds", "Time since the writing of the newest whole checkpoint of a job that has not ended began, of those that were reported.", []string{"job"}, nil)
	descNodes      = prometheus.NewDesc("regroup_nodes", "Nodes by state.", []string{"state"}, nil)
	descSlots      = prometheus.NewDesc("regroup_slots", "Slots by use.", []string{"use"}, nil)
	descQueue      = prometheus.NewDesc("regroup_queue_depth", "Jobs that wait for slots.", nil, nil)
	descStreams    = prometheus.NewDesc("regroup_http_streams", "Open streams of this gateway.", nil, nil)
	descDelivered  = prometheus.NewDesc("regroup_webhook_delivered_total", "Facts that a webhook has taken.", []string{"webhook"}, nil)
	descAttempts   = prometheus.NewDesc("regroup_webhook_failed_attempts_total", "Attempts that a webhook has not taken.", []string{"webhook"}, nil)
	descParked     = prometheus.NewDesc("regroup_webhook_parked", "Facts that were set aside for a webhook, and can be replayed.", []string{"webhook"}, nil)
	descConnected  = prometheus.NewDesc("regroup_connected", "1 = this gateway is connected to NATS.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descBuild, descJobs, descWorkers, descGeneration, descStep, descGoodput, descCommitAge, descReportAge, descLosses, descNodeLosses, descCheckpoint, descNodes, descSlots, descQueue, descStreams, descDelivered, descAttempts, descParked, descConnected} {
		ch <- d
	}
	for _, d := range descsGPU {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	g := m.gateway
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descBuild, 1, g.Version, runtime.Version())
	states := map[events.JobState]int{}
	detailed := 0
	for _, v := range g.feed.Jobs() {
		states[v.State]++
		if v.State.Terminal() || detailed == metricJobs {
			continue
		}
		detailed++
		workers := map[tables.WorkerState]int{}
		for _, w := range v.Workers {
			workers[w.State]++
		}
		for s, n := range workers {
			gauge(descWorkers, float64(n), string(v.Job), string(s))
		}
		gauge(descGeneration, float64(v.Generation), string(v.Job))
		gauge(descStep, float64(v.Step), string(v.Job))
		if goodput, _ := view.Goodput(v, g.Now()); goodput != nil {
			gauge(descGoodput, *goodput, string(v.Job))
		}
		m.redundancy(v, gauge)
	}
	for _, s := range jobStates {
		gauge(descJobs, float64(states[s]), string(s))
	}
	nodes := map[events.NodeState]int{}
	for _, n := range g.feed.Nodes() {
		nodes[n.State]++
		m.gpus(n, gauge)
	}
	for _, s := range []events.NodeState{events.NodeStateReady, events.NodeStateSuspected, events.NodeStateLost, events.NodeStateLeft} {
		gauge(descNodes, float64(nodes[s]), string(s))
	}
	slots := g.slots()
	gauge(descSlots, float64(slots.Used), "used")
	gauge(descSlots, float64(slots.Free), "free")
	gauge(descQueue, float64(len(g.feed.Pool().Queue)))
	gauge(descStreams, float64(g.streams.open()))
	for _, h := range g.hooks.All() {
		ch <- prometheus.MustNewConstMetric(descDelivered, prometheus.CounterValue, float64(h.Delivered), h.ID)
		ch <- prometheus.MustNewConstMetric(descAttempts, prometheus.CounterValue, float64(h.Failed), h.ID)
		gauge(descParked, float64(len(h.Parked)), h.ID)
	}
	connected := 0.0
	if g.feed.Connected() {
		connected = 1
	}
	gauge(descConnected, connected)
}

// redundancy collects what is known of how much a job can lose.
func (m *metrics) redundancy(v events.JobView, gauge func(*prometheus.Desc, float64, ...string)) {
	r := view.RedundancyOf(v)
	if r == nil {
		return
	}
	now := m.gateway.Now()
	for d, at := range map[*prometheus.Desc]time.Time{descCommitAge: r.CommittedAt, descReportAge: r.ReportedAt, descCheckpoint: r.CheckpointAt} {
		if !at.IsZero() {
			gauge(d, max(0, now.Sub(at).Seconds()), string(v.Job))
		}
	}
	if r.Losses != nil {
		gauge(descLosses, float64(*r.Losses), string(v.Job))
		gauge(descNodeLosses, float64(*r.NodeLosses), string(v.Job))
	}
}

// fact counts a new fact.
func (m *metrics) fact(e events.Event) {
	t := e.Body.Type()
	m.facts.WithLabelValues(string(t)).Inc()
	i, ok := e.Body.(events.IncidentClosed)
	if !ok {
		return
	}
	m.recoveries.WithLabelValues(string(i.Cause.Kind)).Inc()
	if i.StepsLost != nil {
		m.stepsLost.Add(float64(*i.StepsLost))
	}
	if i.Cause.Kind.Planned() {
		return
	}
	for phase, ms := range map[string]float64{
		"notice": i.Phases.Notice, "abort": i.Phases.Abort, "judge": i.Phases.Judge, "regroup": i.Phases.Regroup,
		"sync": i.Phases.Sync, "first_step": i.Phases.FirstStep, "back_off": i.Phases.BackOff, "total": i.TotalMS,
	} {
		m.duration.WithLabelValues(phase).Observe(ms / 1000)
	}
}

// counts returns the facts by type.
func (m *metrics) counts() (map[string]uint64, error) {
	families, err := m.counted.Gather()
	if err != nil {
		return nil, errcode.Errorf(errcode.Internal, "count facts: %w", err)
	}
	out := map[string]uint64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			out[x.GetLabel()[0].GetValue()] = uint64(x.GetCounter().GetValue())
		}
	}
	return out, nil
}

func (m *metrics) serve(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// count serves a request and counts it.
func (m *metrics) count(next http.Handler, w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	next.ServeHTTP(s, r)
	m.requests.WithLabelValues(strconv.Itoa(s.status)).Inc()
	if !s.flushed {
		m.latency.Observe(time.Since(began).Seconds())
	}
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status  int
	flushed bool // it is a stream
}

// WriteHeader implements http.ResponseWriter.
func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// FlushError is what http.ResponseController looks for.
func (s *statusWriter) FlushError() error {
	s.flushed = true
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Unwrap is what http.ResponseController looks for.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
