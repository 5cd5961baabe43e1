package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// The controllers and their configuration: ports of their own, no leader election, and Kueue only
// for the kinds that are tried here.
var controllers = []controller{
	{program: "jobset", webhook: "19443", config: `
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
health: { healthProbeBindAddress: "127.0.0.1:18081" }
metrics: { bindAddress: "0" }
webhook: { port: 19443, host: 127.0.0.1 }
leaderElection: { leaderElect: false }
internalCertManagement: { enable: false }
featureGates: { ElasticJobSet: true }
`},
	{program: "trainer-controller-manager", webhook: "19444", config: `
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
health: { healthProbeBindAddress: "127.0.0.1:18082" }
metrics: { bindAddress: "0" }
webhook: { port: 19444, host: 127.0.0.1 }
leaderElection: { leaderElect: false }
certManagement: { enable: false }
`},
	{program: "kueue", webhook: "19445", metrics: "/etc/kueue/metrics/certs", converted: []string{
		"clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io", "multikueueclusters.kueue.x-k8s.io", "workloads.kueue.x-k8s.io",
	}, config: `
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: { healthProbeBindAddress: "127.0.0.1:18083" }
metrics: { bindAddress: "0" }
webhook: { port: 19445, host: 127.0.0.1, certDir: CERTIFICATES }
leaderElection: { leaderElect: false }
internalCertManagement: { enable: false }
featureGates: { ElasticJobsViaWorkloadSlices: true, VisibilityOnDemand: false, MultiKueue: false }
integrations:
  frameworks: ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]
`},
}

// queue are the objects of Kueue: so many CPUs, which all pods here want one of.
const queue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: { name: any }
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: { name: lab }
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{ name: any, resources: [{ name: cpu, nominalQuota: 3 }] }]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: { name: training }
spec: { clusterQueue: lab }
`

// claim is a volume for all pods, a folder of this machine.
const claim = `
apiVersion: v1
kind: PersistentVolume
metadata: { name: checkpoints }
spec: { capacity: { storage: 1Gi }, accessModes: [ReadWriteMany], storageClassName: shared, hostPath: { path: /checkpoints } }
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: checkpoints }
spec: { accessModes: [ReadWriteMany], storageClassName: shared, volumeName: checkpoints, resources: { requests: { storage: 1Gi } } }
`

// lab is a cluster of Regroup beside the control plane, whose nodes are pods.
type lab struct {
	*kubelet
	auth, server string
}

// TestQueues: pods of a Job, a JobSet and a TrainJob, that Kueue admits, are nodes of a job. Their
// processes are real: they train, and come and go as the queue says.
func TestQueues(t *testing.T) {
	p := startControlPlane(t, "testdata/nodes.yaml")
	for _, name := range []string{"node-a", "node-b"} {
		p.addNode(t, name, nil)
	}
	for _, name := range []string{"kueue-system", "training"} {
		n := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}
		if _, err := p.client.CoreV1().Namespaces().Create(t.Context(), n, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range controllers {
		p.runController(t, c)
	}
	for _, o := range append(objects(t, queue), objects(t, claim)...) {
		p.create(t, "training", o)
	}
	l := newLab(t, p)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *lab)
	}{
		{"a Job grows and shrinks with its queue", testElasticJob},
		{"a JobSet is admitted and ends", testJobSet},
		{"a JobSet loses its place in the queue, and gets it again", testPreempted},
		{"a JobSet grows and shrinks by its own controller", testElasticJobSet},
		{"a TrainJob is admitted and ends", testTrainJob},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, l) }) {
			l.output(t.Output())
			return
		}
	}
}

// newLab starts a broker with identities and the services, and enters the secret of the pods.
func newLab(t *testing.T, p *controlPlane) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{auth: filepath.Join(dir, "auth")}
	l.server = "tls://127.0.0.1:" + freePorts(t, 1)[0]
	l.regroup(t, "auth", "init")
	l.regroup(t, "auth", "issue", "client")
	token := l.regroup(t, "auth", "issue", "participant", "pods", "--node", "*", "--token", "--server", l.server)
	program, err := filepath.Abs("../../bin/regroup")
	if err != nil {
		t.Fatal(err)
	}
	startProgram(t, program, "up", "--no-agent", "--auth", l.auth, "--listen", strings.TrimPrefix(l.server, "tls://"), "--state-dir", filepath.Join(dir, "state"))
	secret := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "regroup-pods"}, StringData: map[string]string{"token": strings.TrimSpace(token)}}
	if _, err := p.client.CoreV1().Secrets("training").Create(t.Context(), secret, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.kubelet = p.runPods(t)
	return l
}

// regroup runs a command as the client of the cluster, and returns what it prints.
func (l *lab) regroup(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "../../bin/regroup", args...)
	c.Env = append(os.Environ(), "REGROUP_AUTH="+l.auth, "NO_COLOR=1", "REGROUP_TIMEOUT=2m")
	if args[0] != "auth" {
		c.Env = append(c.Env, "REGROUP_SERVER="+l.server)
	}
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("regroup %v: %v (make build)\n%s%s", args, err, out, &errs)
	}
	return string(out)
}

// manifest reads a file of deploy/queues as a user would change it: the program is the counter,
// which uses the SDK, and takes these arguments. Fields are set by their path.
func manifest(t *testing.T, file string, steps int, set map[string]any) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/queues", file))
	if err != nil {
		t.Fatal(err)
	}
	program := fmt.Sprintf("args: [counter, -quiet, -step-time, 20ms, -steps, %q]", fmt.Sprint(steps))
	changed := strings.Replace(string(text), "args: [python, train.py]", program, 1)
	changed = strings.Replace(changed, `, --]`, `, --recovery, in-process, --]`, 1)
	all := objects(t, changed)
	if len(all) != 1 || changed == string(text) {
		t.Fatalf("%s has %d objects", file, len(all))
	}
	for path, value := range set {
		keys := strings.Split(path, ".")
		if err := unstructured.SetNestedField(all[0].Object, value, keys...); err != nil {
			t.Fatal(err)
		}
	}
	return all[0]
}

// summary is what is compared of the summary of a job.
type summary struct {
	Steps       int `json:"steps"`
	Generations []struct {
		Members []struct {
			Node string `json:"node"`
			PID  int    `json:"pid"`
		} `json:"members"`
	} `json:"generations"`
	Incidents []struct {
		Cause     string `json:"cause"`
		StepsLost *int   `json:"steps_lost"`
	} `json:"incidents"`
}

// summary returns that of the job of a run, and its name; none before the first pod is there.
func (l *lab) summary(t *testing.T, run string) (job string, s summary, err error) {
	t.Helper()
	var all []struct {
		Job  string `json:"job"`
		Spec struct {
			Name string `json:"name"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(l.regroup(t, "ls", "-o", "json")), &all); err != nil {
		return "", s, err
	}
	for _, v := range all {
		if v.Spec.Name == run {
			return v.Job, s, json.Unmarshal([]byte(l.regroup(t, "status", v.Job, "-o", "summary")), &s)
		}
	}
	return "", s, fmt.Errorf("no job %s in %+v", run, all)
}

// world waits until the job of a run makes steps with so many workers, and returns their processes
// by node.
func (l *lab) world(t *testing.T, run string, n int) (job string, processes map[string]int) {
	t.Helper()
	first := -1 // step that was seen with them
	within(t, 5*time.Minute, fmt.Sprintf("%d workers train", n), func(context.Context) (err error) {
		var s summary
		if job, s, err = l.summary(t, run); err != nil {
			return err
		}
		processes = map[string]int{}
		if len(s.Generations) > 0 {
			for _, m := range s.Generations[len(s.Generations)-1].Members {
				processes[m.Node] = m.PID
			}
		}
		switch {
		case len(processes) != n:
			first = -1
		case first < 0:
			first = s.Steps
		case s.Steps > first:
			return nil
		}
		return fmt.Errorf("%+v", s)
	})
	return job, processes
}

// scale changes the number of pods as kubectl patch does.
func (l *lab) scale(t *testing.T, o *unstructured.Unstructured, kind types.PatchType, patch string) {
	t.Helper()
	r, err := l.resource(o.GetNamespace(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Patch(t.Context(), o.GetName(), kind, []byte(patch), meta.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kept checks that survivors have the processes that they had.
func kept(t *testing.T, before, after map[string]int) {
	t.Helper()
	survivors := 0
	for node, pid := range after {
		if had, ok := before[node]; ok {
			survivors++
			if had != pid {
				t.Errorf("the worker of %s was process %d and is %d", node, had, pid)
			}
		}
	}
	if want := min(len(before), len(after)); survivors != want {
		t.Errorf("%d survivors, want %d: %v, then %v", survivors, want, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
}

func testElasticJob(t *testing.T, l *lab) {
	o := l.create(t, "training", manifest(t, "job.yaml", 1_000_000, map[string]any{"spec.parallelism": int64(2)}))
	job, two := l.world(t, string(o.GetUID()), 2)

	// The queue has room for three: the fourth pod waits, and the third with it, because what is
	// asked for is admitted as a whole.
	l.scale(t, o, types.MergePatchType, `{"spec":{"parallelism":4}}`)
	eventually(t, "two pods wait for the queue", func(ctx context.Context) error {
		pods, err := l.client.CoreV1().Pods("training").List(ctx, meta.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=mnist"})
		if err != nil {
			return err
		}
		gated := 0
		for _, pod := range pods.Items {
			gated += len(pod.Spec.SchedulingGates)
		}
		if gated != 2 {
			return fmt.Errorf("%d of %d wait", gated, len(pods.Items))
		}
		return nil
	})
	_, still := l.world(t, string(o.GetUID()), 2)
	kept(t, two, still)

	cluster := objects(t, queue)[1]
	l.scale(t, cluster, types.JSONPatchType, `[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"4"}]`)
	_, four := l.world(t, string(o.GetUID()), 4)
	kept(t, two, four)

	l.scale(t, o, types.MergePatchType, `{"spec":{"parallelism":2}}`)
	_, left := l.world(t, string(o.GetUID()), 2)
	kept(t, four, left)

	l.regroup(t, "stop", job)
	l.condition(t, o, "Failed") // a job that was stopped is not started again
	_, end, err := l.summary(t, string(o.GetUID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range end.Incidents {
		if i.StepsLost == nil || *i.StepsLost != 0 {
			t.Errorf("a planned change has lost steps, or it is unknown: %+v", i)
		}
	}
	l.forget(t, o)
}

func testJobSet(t *testing.T, l *lab) {
	o := l.create(t, "training", manifest(t, "jobset.yaml", 100, nil))
	l.condition(t, o, "Completed")
	l.forget(t, o)
}

func testPreempted(t *testing.T, l *lab) {
	o := l.create(t, "training", manifest(t, "jobset.yaml", 1_000_000, nil))
	job, four := l.world(t, string(o.GetUID()), 4)

	// The queue takes it back, and gives it its place again: the newest checkpoint goes on.
	_, before, err := l.summary(t, string(o.GetUID()))
	if err != nil {
		t.Fatal(err)
	}
	l.activate(t, o, false)
	l.noPods(t)
	l.activate(t, o, true)
	_, again := l.world(t, string(o.GetUID()), 4)
	for node := range again {
		if _, ok := four[node]; ok {
			t.Errorf("%s was to be gone", node)
		}
	}
	_, after, err := l.summary(t, string(o.GetUID()))
	if err != nil {
		t.Fatal(err)
	}
	if after.Steps < before.Steps {
		t.Errorf("it was at step %d, and is at %d", before.Steps, after.Steps)
	}

	l.regroup(t, "stop", job)
	l.condition(t, o, "Failed")
	l.forget(t, o)
}

func testElasticJobSet(t *testing.T, l *lab) {
	m := manifest(t, "jobset.yaml", 1_000_000, nil)
	m.SetLabels(nil) // without Kueue, which does not know the feature
	o := l.create(t, "training", m)
	job, four := l.world(t, string(o.GetUID()), 4)
	resize := func(n int) {
		path := "/spec/replicatedJobs/0/template/spec/"
		l.scale(t, o, types.JSONPatchType, fmt.Sprintf(`[{"op":"replace","path":"%[1]sparallelism","value":%[2]d},{"op":"replace","path":"%[1]scompletions","value":%[2]d}]`, path, n))
	}
	resize(2)
	_, two := l.world(t, string(o.GetUID()), 2)
	kept(t, four, two)
	resize(3)
	_, three := l.world(t, string(o.GetUID()), 3)
	kept(t, two, three)
	l.regroup(t, "stop", job)
	l.condition(t, o, "Failed")
	l.forget(t, o)
}

func testTrainJob(t *testing.T, l *lab) {
	l.create(t, "", manifest(t, "trainingruntime.yaml", 0, nil))
	o := l.create(t, "training", manifest(t, "trainjob.yaml", 100, nil))
	l.condition(t, o, "Complete")
	l.forget(t, o)
}

// forget deletes an object, and waits until its pods are gone.
func (l *lab) forget(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	r, err := l.resource(o.GetNamespace(), o)
	if err != nil {
		t.Fatal(err)
	}
	background := meta.DeletePropagationBackground
	if err := r.Delete(t.Context(), o.GetName(), meta.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	l.noPods(t)
}

// activate lets Kueue take a job from its pods, or admit it again.
func (l *lab) activate(t *testing.T, o *unstructured.Unstructured, active bool) {
	t.Helper()
	kind := new(unstructured.Unstructured)
	kind.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	kind.SetKind("Workload")
	r, err := l.resource("training", kind)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("its workload is active: %v", active), func(ctx context.Context) error {
		all, err := r.List(ctx, meta.ListOptions{})
		if err != nil {
			return err
		}
		for _, w := range all.Items {
			conditions, _, err := unstructured.NestedSlice(w.Object, "status", "conditions")
			if err != nil {
				return err
			}
			over := slices.ContainsFunc(conditions, func(c any) bool { return c.(tree)["type"] == "Finished" && c.(tree)["status"] == "True" })
			if over || !slices.ContainsFunc(w.GetOwnerReferences(), func(r meta.OwnerReference) bool { return r.UID == o.GetUID() }) {
				continue
			}
			_, err = r.Patch(ctx, w.GetName(), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"active":%v}}`, active), meta.PatchOptions{})
			return err
		}
		return fmt.Errorf("none of %d is of this job", len(all.Items))
	})
}

// noPods waits until all pods are gone.
func (l *lab) noPods(t *testing.T) {
	t.Helper()
	eventually(t, "its pods are gone", func(ctx context.Context) error {
		pods, err := l.client.CoreV1().Pods("training").List(ctx, meta.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d are there", len(pods.Items))
		}
		return err
	})
}
