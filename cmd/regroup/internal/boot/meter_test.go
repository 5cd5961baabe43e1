package boot

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// collected is a collector that keeps what it was sent.
type collected struct {
	mu       sync.Mutex
	requests []*collector.ExportMetricsServiceRequest
}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &collector.ExportMetricsServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || r.URL.Path != "/v1/metrics" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, request)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// points returns name{rank,metric}=value of all points, sorted.
func (c *collected) points() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		for _, m := range r.GetResourceMetrics()[0].GetScopeMetrics()[0].GetMetrics() {
			for _, p := range m.GetGauge().GetDataPoints() {
				rank, name := int64(-1), ""
				for _, a := range p.GetAttributes() {
					switch a.GetKey() {
					case "regroup.rank":
						rank = a.GetValue().GetIntValue()
					case "name":
						name = a.GetValue().GetStringValue()
					}
				}
				value := p.GetAsDouble() + float64(p.GetAsInt())
				if m.GetUnit() == "s" { // it grows until it is exported
					value = math.Floor(value / 3600)
				}
				all = append(all, fmt.Sprintf("%s{%d,%s}=%v", m.GetName(), rank, name, value))
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestReportedValuesAreExported: the newest of each worker and name, and once.
func TestReportedValuesAreExported(t *testing.T) {
	var c collected
	s := httptest.NewServer(&c)
	defer s.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	m, err := NewMeter(t.Context(), "agent", "test")
	if err != nil {
		t.Fatal(err)
	}
	report := func(rank ident.Rank, step uint64, values map[string]float64) {
		m.Report(events.Progress{Job: "demo-0001", Rank: rank, Generation: 1, Step: step, Metrics: values, Place: ident.Place{Node: "node-a"}})
	}
	given := map[string]float64{"loss": 3}
	report(0, 1, given)
	report(0, 2, map[string]float64{"loss": 2.5, "val/acc": 0.5})
	report(0, 3, nil)
	report(1, 2, map[string]float64{"loss": 4})
	given["loss"] = 99 // it is the caller's
	if err := m.provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"regroup.reported{0,loss}=2.5", "regroup.reported{0,val/acc}=0.5", "regroup.reported{1,loss}=4", "regroup.step{0,}=3", "regroup.step{1,}=2"}
	if got := c.points(); !slices.Equal(got, want) {
		t.Errorf("exported %q, want %q", got, want)
	}
	report(1, 5, nil)
	m.Report(events.Progress{Job: "demo-0001", Generation: 2, Redundancy: &events.RedundancyReport{CommitAgeMS: new(2.5 * 3600_000), Losses: 2, NodeLosses: 1}})
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = append(want, "regroup.commit.age{0,}=2", "regroup.losses_survived{0,}=2", "regroup.node_losses_survived{0,}=1", "regroup.step{1,}=5")
	slices.Sort(want)
	if got := c.points(); !slices.Equal(got, want) {
		t.Errorf("exported %q, want %q: a value that was not reported again is not repeated", got, want)
	}
}

func TestNothingIsExportedUnlessAskedFor(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	m, err := NewMeter(t.Context(), "agent", "test")
	if err != nil || m.provider != nil {
		t.Fatalf("provider %v, error %v", m.provider, err)
	}
	m.Report(events.Progress{Job: "demo-0001"})
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
