package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// kubelet runs the containers of scheduled pods as processes of this machine. Of a real one it has
// the environment, also from fields of the pod and from secrets; SIGTERM, the grace period and
// SIGKILL; and the status with the exit code. There are no images: a program is looked for in bin;
// and no mounts: variables that begin with the path of a volume name a folder that all pods share.
type kubelet struct {
	*controlPlane
	t   *testing.T
	dir string

	mu   sync.Mutex
	runs map[types.UID]*podRun
	all  sync.WaitGroup
}

// podRun is the process of a pod's only container.
type podRun struct {
	process *os.Process
	told    bool // to end
	ended   chan struct{}
}

// runPods starts the kubelet of all nodes. Its processes end with the test.
func (p *controlPlane) runPods(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{controlPlane: p, t: t, dir: t.TempDir(), runs: map[types.UID]*podRun{}}
	factory := informers.NewSharedInformerFactory(p.client, 0)
	pods := factory.Core().V1().Pods().Informer()
	see := func(o any) {
		if pod, ok := o.(*core.Pod); ok && pod.Spec.NodeName != "" {
			k.see(pod)
		}
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
		k.mu.Lock()
		for _, r := range k.runs {
			k.signal(r, syscall.SIGKILL)
		}
		k.mu.Unlock()
		k.all.Wait()
	})
	return k
}

// see looks at a pod that has changed.
func (k *kubelet) see(pod *core.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.runs[pod.UID]
	switch {
	case r == nil && pod.DeletionTimestamp == nil && pod.Status.Phase == core.PodPending:
		r = &podRun{ended: make(chan struct{})}
		k.runs[pod.UID] = r
		k.all.Go(func() { k.run(pod, r) })
	case r == nil && pod.DeletionTimestamp != nil:
		k.all.Go(func() { k.remove(pod) })
	case r != nil && pod.DeletionTimestamp != nil && !r.told:
		r.told = true
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		k.all.Go(func() {
			k.mu.Lock()
			k.signal(r, syscall.SIGTERM)
			k.mu.Unlock()
			select {
			case <-r.ended:
			case <-time.After(grace):
				k.mu.Lock()
				k.signal(r, syscall.SIGKILL)
				k.mu.Unlock()
				<-r.ended
			}
			k.remove(pod)
		})
	}
}

// signal sends a signal to a process that runs.
func (k *kubelet) signal(r *podRun, s syscall.Signal) {
	select {
	case <-r.ended:
	default:
		if r.process != nil {
			_ = r.process.Signal(s) // one that has just ended needs none
		}
	}
}

// run runs a pod to its end, and reports it.
func (k *kubelet) run(pod *core.Pod, r *podRun) {
	defer close(r.ended)
	c := pod.Spec.Containers[0]
	pod = pod.DeepCopy()
	pod.Status.PodIP = "127.0.0.1"
	code := 128
	cmd, err := k.command(pod, c)
	if err == nil {
		k.mu.Lock()
		if err = cmd.Start(); err == nil {
			r.process = cmd.Process
		}
		k.mu.Unlock()
	}
	if err == nil {
		k.report(pod, core.PodRunning, core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: meta.Now()}})
		_ = cmd.Wait() // the exit code says it
		code = cmd.ProcessState.ExitCode()
	} else {
		k.t.Errorf("pod %s: %v", pod.Name, err)
	}
	phase := core.PodSucceeded
	if code != 0 {
		phase = core.PodFailed
	}
	if code < 0 { // as a shell says it
		code = 137
	}
	k.report(pod, phase, core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: meta.Now()}})
}

// command is the process of a container, not started yet.
func (k *kubelet) command(pod *core.Pod, c core.Container) (*exec.Cmd, error) {
	dir := filepath.Join(k.dir, pod.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	env, err := k.environment(pod, c)
	if err != nil {
		return nil, err
	}
	var args []string
	for _, a := range append(append([]string(nil), c.Command...), c.Args...) {
		args = append(args, expand(a, env))
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(k.log(pod.Name))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + dir, "REGROUP_STATE_DIR=" + filepath.Join(dir, "state"), "REGROUP_AGENT_CHECKPOINT_FREE=0"}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd, nil
}

// log is where a pod's output is kept.
func (k *kubelet) log(pod string) string { return filepath.Join(k.dir, pod+".log") }

// environment returns the variables of a container.
func (k *kubelet) environment(pod *core.Pod, c core.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range c.Env {
		value := expand(e.Value, env)
		switch from := e.ValueFrom; {
		case from == nil:
			for _, m := range c.VolumeMounts {
				if rest, ok := strings.CutPrefix(value, m.MountPath); ok {
					value = filepath.Join(k.dir, "volumes", m.Name) + rest
					if err := os.MkdirAll(value, 0o700); err != nil {
						return nil, err
					}
				}
			}
		case from.SecretKeyRef != nil:
			s, err := k.client.CoreV1().Secrets(pod.Namespace).Get(k.t.Context(), from.SecretKeyRef.Name, meta.GetOptions{})
			if err != nil {
				return nil, err
			}
			value = string(s.Data[from.SecretKeyRef.Key])
		case from.FieldRef != nil:
			var err error
			if value, err = field(pod, from.FieldRef.FieldPath); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%s: this kubelet knows no such source", e.Name)
		}
		env[e.Name] = value
	}
	return env, nil
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// expand replaces $(NAME) by variables that there are.
func expand(text string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(r string) string {
		if value, ok := env[r[2:len(r)-1]]; ok {
			return value
		}
		return r
	})
}

// field returns a field of the downward API.
func field(pod *core.Pod, path string) (string, error) {
	if key, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return pod.Labels[strings.TrimSuffix(key, "']")], nil
	}
	if key, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return pod.Annotations[strings.TrimSuffix(key, "']")], nil
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "status.podIP":
		return pod.Status.PodIP, nil
	}
	return "", fmt.Errorf("no field %s", path)
}

// report changes the status of a pod that is still there.
func (k *kubelet) report(pod *core.Pod, phase core.PodPhase, state core.ContainerState) {
	ready := core.ConditionFalse
	if phase == core.PodRunning {
		ready = core.ConditionTrue
	}
	now := meta.Now()
	status := core.PodStatus{Phase: phase, PodIP: pod.Status.PodIP, PodIPs: []core.PodIP{{IP: pod.Status.PodIP}}, StartTime: &now}
	for _, kind := range []core.PodConditionType{core.PodInitialized, core.ContainersReady, core.PodReady} {
		status.Conditions = append(status.Conditions, core.PodCondition{Type: kind, Status: ready, LastTransitionTime: now})
	}
	status.ContainerStatuses = []core.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: state, Ready: phase == core.PodRunning}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		k.t.Error(err)
		return
	}
	k.insist(pod, func(ctx context.Context) error {
		_, err := k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
		return err
	})
}

// remove removes a pod whose process has ended.
func (k *kubelet) remove(pod *core.Pod) {
	now := int64(0)
	k.insist(pod, func(ctx context.Context) error {
		return k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &meta.Preconditions{UID: &pod.UID}})
	})
}

// insist asks the API server until it agrees, the pod is gone, or the test ends.
func (k *kubelet) insist(pod *core.Pod, ask func(context.Context) error) {
	_ = wait.PollUntilContextCancel(k.t.Context(), 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := ask(ctx)
		if errors.IsInvalid(err) {
			k.t.Errorf("pod %s: %v", pod.Name, err)
			return true, nil
		}
		return err == nil || errors.IsNotFound(err) || errors.IsConflict(err), nil
	})
}

// output writes what the pods have said.
func (k *kubelet) output(to io.Writer) {
	logs, err := filepath.Glob(filepath.Join(k.dir, "*.log"))
	if err != nil {
		k.t.Error(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			k.t.Error(err)
		}
		fmt.Fprintf(to, "--- %s ---\n%s\n", strings.TrimSuffix(filepath.Base(path), ".log"), text[max(0, len(text)-3000):])
	}
}
