package gateway_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestRulesAskForWhatThereIs: an alert about a metric that has another name never fires.
func TestRulesAskForWhatThereIs(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan *prometheus.Desc, 1000)
	bare(t, nil).gateway.Registry().Describe(all)
	close(all)
	var names []string
	for d := range all {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		names = append(names, name)
	}
	asked := regexp.MustCompile(`\bregroup_\w+`).FindAllString(string(rules), -1)
	if len(names) < 10 || len(asked) < 10 {
		t.Fatalf("%d metrics, the rules have %d names", len(names), len(asked))
	}
	for _, a := range asked {
		if !slices.Contains(names, strings.TrimSuffix(a, "_bucket")) {
			t.Errorf("no metric is named %s", a)
		}
	}
}
