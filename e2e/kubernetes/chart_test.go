package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

type tree = map[string]any

// onGPUs are values for a cluster in which jobs run on tainted nodes with GPUs, and everything else
// on the others.
var onGPUs = tree{
	"gateway":  tree{"type": "NodePort", "storage": "1Gi"},
	"services": tree{"replicas": 3},
	"agents": tree{
		"slots": 2, "shm": "8Gi", "nodeSelector": tree{"accelerator": "gpu"},
		"tolerations": []any{tree{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}},
		"resources":   tree{"limits": tree{"nvidia.com/gpu": 2, "memory": "12Gi"}},
	},
}

// TestChart is one test, because a control plane takes a while to start.
func TestChart(t *testing.T) {
	p := startControlPlane(t, "testdata/stages.yaml")
	p.addStorageClass(t)
	for _, name := range []string{"node-a", "node-b", "node-c", "node-d"} {
		p.addNode(t, name, nil)
	}
	p.addNode(t, "node-gpu", map[string]string{"accelerator": "gpu"}, core.Taint{Key: "nvidia.com/gpu", Value: "present", Effect: core.TaintEffectNoSchedule})
	p.addNamespace(t, "training")
	p.addNamespace(t, "gpus")

	for _, step := range []struct {
		name string
		run  func(*testing.T, *controlPlane)
	}{
		{"every object is accepted", testAccepted},
		{"wrong values are refused", testRefused},
		{"installed", testInstalled},
		{"drained", testDrained},
		{"nodes come and go", testNodes},
		{"upgraded", testUpgraded},
		{"on nodes with GPUs", testGPUs},
		{"uninstalled", testUninstalled},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, p) }) {
			return // each step goes on where the one before has ended
		}
	}
}

// dryRun asks the API server to create each object, without keeping it.
func (p *controlPlane) dryRun(t *testing.T, w *warnings, values tree) (created int, refused error) {
	t.Helper()
	c := rest.CopyConfig(p.config)
	c.WarningHandlerWithContext = w
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(p.client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, document := range manifests(t, "training", values) {
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		kind := o.GroupVersionKind()
		m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Resource(m.Resource).Namespace("training").Create(t.Context(), o,
			meta.CreateOptions{DryRun: []string{meta.DryRunAll}, FieldValidation: meta.FieldValidationStrict})
		if err != nil {
			return created, fmt.Errorf("%s %s: %w", kind.Kind, o.GetName(), err)
		}
		created++
	}
	return created, nil
}

// testAccepted: the server takes all objects, with all its admission and with strict validation of
// fields, and has nothing to remark.
func testAccepted(t *testing.T, p *controlPlane) {
	for name, c := range map[string]struct {
		values  tree
		objects int
	}{
		"defaults":    {nil, 18},
		"one broker":  {tree{"brokers": tree{"replicas": 1}}, 18},
		"on GPUs":     {onGPUs, 18},
		"least":       {tree{"gateway": tree{"enabled": false}, "agents": tree{"enabled": false}, "networkPolicy": tree{"enabled": false}}, 12},
		"five, fixed": {tree{"brokers": tree{"replicas": 5, "storageClass": "local"}, "gateway": tree{"type": "LoadBalancer"}}, 18},
	} {
		t.Run(name, func(t *testing.T) {
			w := new(warnings)
			created, err := p.dryRun(t, w, c.values)
			if err != nil {
				t.Fatal(err)
			}
			w.none(t)
			if created != c.objects {
				t.Errorf("%d objects, want %d", created, c.objects)
			}
		})
	}
}

// testRefused: what the chart's own schema cannot know is refused by the server, which names the
// field.
func testRefused(t *testing.T, p *controlPlane) {
	for field, values := range map[string]tree{
		"storageClassName":        {"brokers": tree{"storageClass": "Fast Disks"}},
		"nodeSelector":            {"agents": tree{"nodeSelector": tree{"no label": "x"}}},
		"tolerations[0].operator": {"agents": tree{"tolerations": []any{tree{"key": "gpu", "operator": "Sometimes"}}}},
		"tolerations[0].kye":      {"agents": tree{"tolerations": []any{tree{"kye": "gpu"}}}},
		"limits[memory]":          {"services": tree{"resources": tree{"limits": tree{"memory": "-1"}}}},
		"must be less than":       {"gateway": tree{"resources": tree{"requests": tree{"cpu": 2}, "limits": tree{"cpu": 1}}}},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := p.dryRun(t, new(warnings), values)
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), field) {
				t.Errorf("refused, but the field is not named: %v", err)
			}
		})
	}
}

// testInstalled: there is an agent on each node that is not tainted, brokers and the replicas of
// each service on different nodes, and a volume for each broker.
func testInstalled(t *testing.T, p *controlPlane) {
	p.install(t, "training", nil)
	p.onNodes(t, "training", "agent", "node-a", "node-b", "node-c", "node-d")
	for component, replicas := range map[string]int{"nats": 3, "discovery": 2, "scheduler": 2, "rendezvous": 2, "registry": 2, "gateway": 1} {
		nodes, err := p.nodesOf(t.Context(), "training", component)
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes) != replicas || len(slices.Compact(nodes)) != replicas {
			t.Errorf("%s is on %v, want %d nodes", component, nodes, replicas)
		}
	}
	claims, err := p.client.CoreV1().PersistentVolumeClaims("training").List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.Status.Phase != core.ClaimBound {
			t.Errorf("%s is %s", c.Name, c.Status.Phase)
		}
	}
	if len(claims.Items) != 4 {
		t.Errorf("%d claims, want one for each broker and one for the gateway", len(claims.Items))
	}
}

func (p *controlPlane) evict(ctx context.Context, pod string) error {
	return p.client.PolicyV1().Evictions("training").Evict(ctx, &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: pod, Namespace: "training"}})
}

func (p *controlPlane) cordon(t *testing.T, node string, on bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)
	if _, err := p.client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, meta.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testDrained: as long as a broker's node is drained no other broker may be evicted.
func testDrained(t *testing.T, p *controlPlane) {
	broker, err := p.client.CoreV1().Pods("training").Get(t.Context(), "lab-nats-0", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node := broker.Spec.NodeName
	p.cordon(t, node, true)
	eventually(t, "the first broker is evicted", func(ctx context.Context) error { return p.evict(ctx, "lab-nats-0") })
	eventually(t, "its successor waits for the node with its volume", func(ctx context.Context) error {
		b, err := p.client.CoreV1().Pods("training").Get(ctx, "lab-nats-0", meta.GetOptions{})
		if err == nil && (b.UID == broker.UID || b.Status.Phase != core.PodPending) {
			err = fmt.Errorf("it is %s", b.Status.Phase)
		}
		return err
	})
	for _, other := range []string{"lab-nats-1", "lab-nats-2"} {
		if err := p.evict(t.Context(), other); !errors.IsTooManyRequests(err) {
			t.Errorf("a second broker may be evicted: %v", err)
		}
	}
	p.cordon(t, node, false)
	eventually(t, "the next broker is evicted", func(ctx context.Context) error { return p.evict(ctx, "lab-nats-1") })
	eventually(t, "three brokers are ready", func(ctx context.Context) error {
		nodes, err := p.nodesOf(ctx, "training", "nats")
		if err == nil && len(slices.Compact(nodes)) != 3 {
			err = fmt.Errorf("on %v", nodes)
		}
		return err
	})
}

// testNodes: a node that joins gets an agent, an agent that is deleted is replaced, and nothing is
// left of a node that is removed.
func testNodes(t *testing.T, p *controlPlane) {
	p.addNode(t, "node-e", nil)
	p.onNodes(t, "training", "agent", "node-a", "node-b", "node-c", "node-d", "node-e")
	agents := meta.ListOptions{LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=node-a"}
	pods, err := p.client.CoreV1().Pods("training").List(t.Context(), agents)
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d agents on node-a: %v", len(pods.Items), err)
	}
	first := pods.Items[0]
	if got := *first.Spec.TerminationGracePeriodSeconds; got != 90 {
		t.Errorf("an agent has %d s to give up its work", got)
	}
	if err := p.client.CoreV1().Pods("training").Delete(t.Context(), first.Name, meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "node-a has another agent", func(ctx context.Context) error {
		pods, err := p.client.CoreV1().Pods("training").List(ctx, agents)
		if err == nil && (len(pods.Items) != 1 || pods.Items[0].UID == first.UID || pods.Items[0].Status.Phase != core.PodRunning) {
			err = fmt.Errorf("%d agents", len(pods.Items))
		}
		return err
	})
	if err := p.client.CoreV1().Nodes().Delete(t.Context(), "node-e", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.onNodes(t, "training", "agent", "node-a", "node-b", "node-c", "node-d")
}

// testUpgraded: another image is rolled out, while one broker and one replica of each service at
// most are away. The size of volumes that exist cannot be changed.
func testUpgraded(t *testing.T, p *controlPlane) {
	least := p.watchReady(t)
	if err := p.upgrade(t, "training", tree{"image": tree{"tag": "next"}}); err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
	want := map[string]int32{"lab-nats": 2, "lab-discovery": 1, "lab-scheduler": 1, "lab-rendezvous": 1, "lab-registry": 1}
	if got := least(); !maps.EqualFunc(got, want, func(got, want int32) bool { return got >= want }) {
		t.Errorf("ready at the least: %v, want %v", got, want)
	}
	eventually(t, "all pods are of the next image", func(ctx context.Context) error {
		pods, err := p.client.CoreV1().Pods("training").List(ctx, meta.ListOptions{LabelSelector: "app.kubernetes.io/component notin (agent, init)"})
		if err == nil && len(pods.Items) != 12 {
			err = fmt.Errorf("%d pods, want 12", len(pods.Items))
		}
		for _, pod := range pods.Items {
			if got := pod.Spec.Containers[0].Image; got != "regroup:next" {
				err = fmt.Errorf("%s has image %s", pod.Name, got)
			}
		}
		return err
	})
	err := p.upgrade(t, "training", tree{"image": tree{"tag": "next"}, "brokers": tree{"storage": "50Gi"}})
	if err == nil || !strings.Contains(err.Error(), "spec.volumeClaimTemplates") {
		t.Errorf("the size of volumes that exist is changed: %v", err)
	}
}

// watchReady watches how many replicas are ready. The function that it returns ends that, and
// returns the least of each set.
func (p *controlPlane) watchReady(t *testing.T) func() map[string]int32 {
	t.Helper()
	deployments, err := p.client.AppsV1().Deployments("training").Watch(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sets, err := p.client.AppsV1().StatefulSets("training").Watch(t.Context(), meta.ListOptions{FieldSelector: "metadata.name=lab-nats"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var done sync.WaitGroup
	least := map[string]int32{}
	see := func(name string, ready int32) {
		mu.Lock()
		defer mu.Unlock()
		if was, ok := least[name]; !ok || ready < was {
			least[name] = ready
		}
	}
	done.Go(func() {
		for event := range deployments.ResultChan() {
			if d, ok := event.Object.(*apps.Deployment); ok {
				see(d.Name, d.Status.ReadyReplicas)
			}
		}
	})
	done.Go(func() {
		for event := range sets.ResultChan() {
			if s, ok := event.Object.(*apps.StatefulSet); ok {
				see(s.Name, s.Status.ReadyReplicas)
			}
		}
	})
	return func() map[string]int32 {
		deployments.Stop()
		sets.Stop()
		done.Wait()
		return least
	}
}

// testGPUs: with a selector and a toleration, agents are on the nodes with GPUs alone.
func testGPUs(t *testing.T, p *controlPlane) {
	p.install(t, "gpus", onGPUs)
	p.onNodes(t, "gpus", "agent", "node-gpu")
}

// testUninstalled: nothing is left but the volumes, which hold what the cluster knows.
func testUninstalled(t *testing.T, p *controlPlane) {
	p.uninstall(t, "training")
	eventually(t, "no pod is left", func(ctx context.Context) error {
		pods, err := p.client.CoreV1().Pods("training").List(ctx, meta.ListOptions{})
		if err == nil && len(pods.Items) != 0 {
			err = fmt.Errorf("%d pods, such as %s of %s with the finalizers %q", len(pods.Items), pods.Items[0].Name, pods.Items[0].Spec.NodeName, pods.Items[0].Finalizers)
		}
		return err
	})
	claims, err := p.client.CoreV1().PersistentVolumeClaims("training").List(t.Context(), meta.ListOptions{})
	if err != nil || len(claims.Items) != 4 {
		t.Errorf("%d claims are left, want 4: %v", len(claims.Items), err)
	}
}
