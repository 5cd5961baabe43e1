// Package check lints the chart, renders it, and decodes what comes out as strictly as an API
// server does. It is a module of its own, so that nothing else depends on Helm and Kubernetes.
package check

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const dir = "../regroup"

var decoder = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// render returns the objects of the chart with these values.
func render(t *testing.T, values map[string]any) []runtime.Object {
	t.Helper()
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "lab", Namespace: "training", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			objects = append(objects, decode(t, name, files[name])...)
		}
	}
	return objects
}

func decode(t *testing.T, name, text string) (objects []runtime.Object) {
	t.Helper()
	for _, document := range strings.Split("\n"+text, "\n---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		o, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, document)
			continue
		}
		objects = append(objects, o)
	}
	return objects
}

// TestLint has no message above information.
func TestLint(t *testing.T) {
	lint := action.NewLint()
	lint.Strict = true
	result := lint.Run([]string{dir}, nil)
	for _, err := range result.Errors {
		t.Error(err)
	}
	if len(result.Messages) == 0 {
		t.Error("nothing was linted")
	}
}

// pods returns the pod of each object that has one, with the selector by which it is found.
func pods(objects []runtime.Object) map[string]struct {
	spec     core.PodSpec
	labels   map[string]string
	selector *meta.LabelSelector
} {
	all := map[string]struct {
		spec     core.PodSpec
		labels   map[string]string
		selector *meta.LabelSelector
	}{}
	add := func(name string, p core.PodTemplateSpec, s *meta.LabelSelector) {
		x := all[name]
		x.spec, x.labels, x.selector = p.Spec, p.Labels, s
		all[name] = x
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *apps.Deployment:
			add(o.Name, o.Spec.Template, o.Spec.Selector)
		case *apps.StatefulSet:
			add(o.Name, o.Spec.Template, o.Spec.Selector)
		case *apps.DaemonSet:
			add(o.Name, o.Spec.Template, o.Spec.Selector)
		case *batch.Job:
			add(o.Name, o.Spec.Template, nil)
		}
	}
	return all
}

// TestObjects of several configurations are valid, select what they should, and let no container do
// more than it must.
func TestObjects(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		pods   int
	}{
		"defaults":   {nil, 8},
		"one broker": {map[string]any{"brokers": map[string]any{"replicas": 1}}, 8},
		"least":      {map[string]any{"gateway": map[string]any{"enabled": false}, "agents": map[string]any{"enabled": false}, "networkPolicy": map[string]any{"enabled": false}}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, c.values)
			all := pods(objects)
			if len(all) != c.pods {
				t.Errorf("%d kinds of pods, want %d", len(all), c.pods)
			}
			for name, p := range all {
				if p.selector != nil {
					s, err := meta.LabelSelectorAsSelector(p.selector)
					if err != nil || !s.Matches(labels.Set(p.labels)) {
						t.Errorf("%s does not select its own pods: %v", name, err)
					}
				}
				if p.spec.SecurityContext == nil || !*p.spec.SecurityContext.RunAsNonRoot || *p.spec.AutomountServiceAccountToken {
					t.Errorf("%s may be root, or has a token of the API server", name)
				}
				mounts := map[string]bool{}
				for _, v := range p.spec.Volumes {
					mounts[v.Name] = true
				}
				for _, one := range p.spec.Containers {
					s := one.SecurityContext
					if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Contains(s.Capabilities.Drop, "ALL") {
						t.Errorf("%s may do more than it must: %+v", name, s)
					}
					for _, m := range one.VolumeMounts {
						if claimed := m.Name == "state" && (name == "lab-nats" || name == "lab-gateway"); !mounts[m.Name] && !claimed {
							t.Errorf("%s mounts %s, which it lacks", name, m.Name)
						}
					}
				}
			}
			selects := func(name string, s map[string]string) {
				for _, p := range all {
					if labels.SelectorFromSet(s).Matches(labels.Set(p.labels)) {
						return
					}
				}
				t.Errorf("%s selects no pod: %v", name, s)
			}
			for _, o := range objects {
				switch o := o.(type) {
				case *core.Service:
					selects(o.Name, o.Spec.Selector)
				case *policy.PodDisruptionBudget:
					selects(o.Name, o.Spec.Selector.MatchLabels)
				case *network.NetworkPolicy:
					selects(o.Name, o.Spec.PodSelector.MatchLabels)
				}
			}
		})
	}
}

// TestPodMonitor: it selects the gateway, and keeps the label job, which is Regroup's. Its kind is
// of Prometheus Operator, so it is decoded as what it is in YAML.
func TestPodMonitor(t *testing.T) {
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	monitor := func(values map[string]any) (all map[string]any) {
		t.Helper()
		given, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "lab", IsInstall: true}, chartutil.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.Render(c, given)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict([]byte(files["regroup/templates/podmonitor.yaml"]), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := monitor(nil); all != nil {
		t.Errorf("without being asked for: %v", all)
	}
	all := monitor(map[string]any{"gateway": map[string]any{"podMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}}}})
	if all["kind"] != "PodMonitor" || all["metadata"].(map[string]any)["labels"].(map[string]any)["release"] != "prometheus" {
		t.Fatalf("%v", all)
	}
	spec := all["spec"].(map[string]any)
	selector := map[string]string{}
	for k, v := range spec["selector"].(map[string]any)["matchLabels"].(map[string]any) {
		selector[k] = v.(string)
	}
	gateway := pods(render(t, nil))["lab-gateway"]
	if !labels.SelectorFromSet(selector).Matches(labels.Set(gateway.labels)) {
		t.Errorf("it does not select the gateway: %v", selector)
	}
	at := spec["podMetricsEndpoints"].([]any)[0].(map[string]any)
	if at["port"] != gateway.spec.Containers[0].Ports[0].Name || at["honorLabels"] != true || at["path"] != "/metrics" {
		t.Errorf("%v", at)
	}
	credentials := at["authorization"].(map[string]any)["credentials"].(map[string]any)
	if credentials["name"] != "regroup-gateway" || credentials["key"] != "token" {
		t.Errorf("%v", credentials)
	}
}

// TestSecrets: secrets.sh makes each secret, with each key, that a pod wants, of a real directory
// of identities.
func TestSecrets(t *testing.T) {
	auth := filepath.Join(t.TempDir(), "auth")
	for _, args := range [][]string{{"init", "--host", "lab-nats"}, {"issue", "agent", "nodes", "--node", "*"}} {
		if out, err := exec.Command("../../../bin/regroup", append([]string{"auth", "--auth", auth}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("regroup auth %v: %v (make build)\n%s", args, err, out)
		}
	}
	out, err := exec.Command("../secrets.sh", auth).Output()
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]map[string][]byte{}
	for _, o := range decode(t, "secrets.sh", string(out)) {
		s := o.(*core.Secret)
		made[s.Name] = s.Data
		for key, value := range s.Data {
			if strings.HasSuffix(key, ".nk") || len(value) == 0 {
				t.Errorf("%s has %s", s.Name, key)
			}
		}
	}
	given := map[string]bool{"regroup-gateway-tls": true} // made by the person who installs the chart
	used := map[string]bool{}
	for name, p := range pods(render(t, nil)) {
		for _, v := range p.spec.Volumes {
			if v.Secret == nil || given[v.Secret.SecretName] {
				continue
			}
			used[v.Secret.SecretName] = true
			data, ok := made[v.Secret.SecretName]
			if !ok {
				t.Errorf("%s wants the secret %s, which is not made", name, v.Secret.SecretName)
			}
			for _, item := range v.Secret.Items {
				if data[item.Key] == nil {
					t.Errorf("%s wants %s of %s", name, item.Key, v.Secret.SecretName)
				}
			}
		}
	}
	accounts, err := filepath.Glob(filepath.Join(auth, "accounts", "*.jwt"))
	if len(used) < 8 || err != nil || len(accounts) == 0 || len(made["regroup-accounts"]) != len(accounts) || made["regroup-user-all"] != nil {
		t.Errorf("%d secrets are used; accounts: %d", len(used), len(made["regroup-accounts"]))
	}
	if info, err := os.Stat("../secrets.sh"); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("%v", err)
	}
}

// TestWrongValuesAreRefused by the schema, with the name of the field.
func TestWrongValuesAreRefused(t *testing.T) {
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for field, values := range map[string]map[string]any{
		"replicas": {"brokers": map[string]any{"replicas": 2}},
		"slots":    {"agents": map[string]any{"slots": 0}},
		"imgae":    {"imgae": map[string]any{}},
		"shm":      {"agents": map[string]any{"shm": "much"}},
		"storage":  {"brokers": map[string]any{"storage": "five"}},
		"type":     {"gateway": map[string]any{"type": "Public"}},
	} {
		_, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "lab"}, chartutil.DefaultCapabilities)
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
