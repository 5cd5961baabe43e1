package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
)

// warnings are those that the API server gives with its answers: unknown and duplicate fields,
// deprecated versions, pods that Pod Security would refuse. One fails the test.
type warnings struct {
	mu   sync.Mutex
	seen []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, text)
}

func (w *warnings) none(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.seen {
		t.Errorf("the API server warns: %s", text)
	}
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load("../../deploy/helm/regroup")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// manifests renders the chart and returns its documents in order.
func manifests(t *testing.T, namespace string, values map[string]any) (documents []string) {
	t.Helper()
	c := loadChart(t)
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "lab", Namespace: namespace, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for document := range strings.SplitSeq("\n"+files[name], "\n---") {
			if strings.TrimSpace(document) != "" {
				documents = append(documents, document)
			}
		}
	}
	return documents
}

// helm is a client of Helm in one namespace, as the command of that name has it.
func (p *controlPlane) helm(t *testing.T, namespace string, w *warnings) *action.Configuration {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Namespace = &p.kubeconfig, &namespace
	flags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.WarningHandlerWithContext = w
		c.QPS, c.Burst = p.config.QPS, p.config.Burst
		return c
	}
	var printed []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(printed[max(0, len(printed)-20):], "\n"))
		}
	})
	log := func(format string, args ...any) { printed = append(printed, fmt.Sprintf(format, args...)) }
	configuration := new(action.Configuration)
	if err := configuration.Init(flags, namespace, "secret", log); err != nil {
		t.Fatal(err)
	}
	return configuration
}

// install installs the chart as the release lab, waits until everything is ready, and expects no
// warning.
func (p *controlPlane) install(t *testing.T, namespace string, values map[string]any) {
	t.Helper()
	w := new(warnings)
	install := action.NewInstall(p.helm(t, namespace, w))
	install.ReleaseName, install.Namespace = "lab", namespace
	install.Wait, install.WaitForJobs, install.Timeout = true, true, 2*time.Minute
	if _, err := install.RunWithContext(t.Context(), loadChart(t), values); err != nil {
		t.Fatalf("helm install: %v", err)
	}
	w.none(t)
}

// upgrade upgrades the release to other values.
func (p *controlPlane) upgrade(t *testing.T, namespace string, values map[string]any) error {
	t.Helper()
	w := new(warnings)
	upgrade := action.NewUpgrade(p.helm(t, namespace, w))
	upgrade.Namespace, upgrade.Wait, upgrade.WaitForJobs, upgrade.Timeout = namespace, true, true, 2*time.Minute
	_, err := upgrade.RunWithContext(t.Context(), "lab", loadChart(t), values)
	w.none(t)
	return err
}

// uninstall removes the release.
func (p *controlPlane) uninstall(t *testing.T, namespace string) {
	t.Helper()
	w := new(warnings)
	uninstall := action.NewUninstall(p.helm(t, namespace, w))
	uninstall.Wait, uninstall.Timeout = true, 2*time.Minute
	if _, err := uninstall.Run("lab"); err != nil {
		t.Fatalf("helm uninstall: %v", err)
	}
	w.none(t)
}
