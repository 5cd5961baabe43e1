// Package check judges the dashboard for Grafana: by Grafana's own schema, and by the series that a
// gateway has. It is a module of its own, so that nothing else depends on Grafana and Prometheus.
package check

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// read returns the dashboard as Grafana reads it. A field that its schema lacks is an error.
func read(t *testing.T) dashboard.Dashboard {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile("../regroup.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard.Dashboard
	if err := some(new(dashboard.Dashboard).UnmarshalJSONStrict(text)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if err := some(d.Validate()); err != nil {
		t.Fatal(err)
	}
	return d
}

// some returns nil for an empty list of errors, which the library returns where there are none. For
// that reason it also leaves panels out when it reads strictly, and they are read once more.
func some(err error) error {
	if all := cog.BuildErrors(nil); errors.As(err, &all) && len(all) == 0 {
		return nil
	}
	return err
}

// exported returns the labels of each series of a gateway, which a test of the gateway writes down.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../services/gateway/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		all[words[0]] = words[1:]
	}
	return all
}

// TestPanels: each expression is PromQL, and each series and label in it is one that a gateway has.
func TestPanels(t *testing.T) {
	series := exported(t)
	used := map[string]bool{}
	expressions, ids := 0, map[uint32]bool{}
	for _, p := range read(t).Panels {
		if p.Panel == nil {
			continue
		}
		if ids[*p.Panel.Id] {
			t.Errorf("two panels have the id %d", *p.Panel.Id)
		}
		ids[*p.Panel.Id] = true
		for _, target := range p.Panel.Targets {
			expressions++
			for _, name := range judge(t, *p.Panel.Title, expression(t, target), series) {
				used[name] = true
			}
		}
	}
	if expressions < 30 {
		t.Errorf("only %d expressions were found", expressions)
	}
	for name := range series {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !used[name] && !slices.ContainsFunc([]string{"", "_bucket", "_sum", "_count"}, func(s string) bool { return used[base+s] }) && !slices.Contains(unshown, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// unshown are series that no panel has.
var unshown = []string{
	"regroup_job_redundancy_report_age_seconds", // that of the commit is shown
	"regroup_stream_messages",                   // the bytes are shown
	"regroup_webhook_delivered_total",           // what was not delivered is shown
}

func parse(text string) (parser.Expr, error) {
	return parser.NewParser(parser.Options{}).ParseExpr(text)
}

// expression returns that of a query to Prometheus.
func expression(t *testing.T, target variants.Dataquery) string {
	t.Helper()
	switch q := target.(type) {
	case prometheus.Dataquery:
		return q.Expr
	case *prometheus.Dataquery:
		return q.Expr
	default:
		t.Fatalf("a query is %T", target)
		return ""
	}
}

// scraped are the labels of a scrape, whatever is scraped.
var scraped = []string{"instance", "le", labels.MetricName}

// judge returns the series of an expression.
func judge(t *testing.T, where, text string, series map[string][]string) (names []string) {
	t.Helper()
	text = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$job", ".*").Replace(text)
	e, err := parse(text)
	if err != nil {
		t.Errorf("%s: %q: %v", where, text, err)
		return nil
	}
	known := slices.Clone(scraped)
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		own, ok := series[s.Name]
		if !ok {
			t.Errorf("%s: no gateway has %s", where, s.Name)
		}
		names, known = append(names, s.Name), append(known, own...)
		for _, m := range s.LabelMatchers {
			if !slices.Contains(own, m.Name) && !slices.Contains(scraped, m.Name) {
				t.Errorf("%s: %s has no label %s", where, s.Name, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if !slices.Contains(known, label) {
					t.Errorf("%s: %q: no series has the label %s", where, text, label)
				}
			}
		}
		return nil
	})
	if len(names) == 0 {
		t.Errorf("%s: %q has no series", where, text)
	}
	return names
}
