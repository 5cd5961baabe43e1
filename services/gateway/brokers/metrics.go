package brokers

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	ofCopy     = []string{"stream", "broker"}
	ofConsumer = []string{"stream", "consumer"}

	descLag         = prometheus.NewDesc("regroup_stream_replica_lag_messages", "Messages, and other entries of a stream's log, that a copy lacks.", ofCopy, nil)
	descCurrent     = prometheus.NewDesc("regroup_stream_replica_current", "1 = a copy has all that its leader has, and its broker is there.", ofCopy, nil)
	descBytes       = prometheus.NewDesc("regroup_stream_bytes", "What a stream stores.", []string{"stream"}, nil)
	descLimit       = prometheus.NewDesc("regroup_stream_limit_bytes", "What a stream may store.", []string{"stream"}, nil)
	descMessages    = prometheus.NewDesc("regroup_stream_messages", "Messages that a stream stores.", []string{"stream"}, nil)
	descPending     = prometheus.NewDesc("regroup_consumer_pending", "Messages that were delivered to no replica of a service yet.", ofConsumer, nil)
	descAckPending  = prometheus.NewDesc("regroup_consumer_ack_pending", "Messages that were delivered and not settled.", ofConsumer, nil)
	descRedelivered = prometheus.NewDesc("regroup_consumer_redelivered", "Messages not settled that were delivered more than once.", ofConsumer, nil)
)

// Collector gives Prometheus the newest report. What is unknown has no series.
type Collector func() Report

// Describe implements prometheus.Collector.
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLag, descCurrent, descBytes, descLimit, descMessages, descPending, descAckPending, descRedelivered} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range c().Streams {
		if s.Unknown != "" {
			continue
		}
		gauge(descBytes, float64(s.Bytes), s.Stream)
		gauge(descMessages, float64(s.Messages), s.Stream)
		if s.MaxBytes > 0 {
			gauge(descLimit, float64(s.MaxBytes), s.Stream)
		}
		for _, r := range s.Replicas {
			current := 0.0
			if r.Current && !r.Offline {
				current = 1
			}
			gauge(descLag, float64(r.Lag), s.Stream, r.Broker)
			gauge(descCurrent, current, s.Stream, r.Broker)
		}
		for _, k := range s.Consumers {
			if k.Unknown == "" {
				gauge(descPending, float64(k.Pending), s.Stream, k.Consumer)
				gauge(descAckPending, float64(k.AckPending), s.Stream, k.Consumer)
				gauge(descRedelivered, float64(k.Redelivered), s.Stream, k.Consumer)
			}
		}
	}
}
