package kubernetes

import (
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// serveStreams lets the pods that wait for the streams become ready (testdata/stages.yaml), once
// the job that makes them has succeeded in this namespace. It ends with the test.
func (p *controlPlane) serveStreams(t *testing.T, namespace string) {
	t.Helper()
	pods, err := p.client.CoreV1().Pods(namespace).Watch(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	t.Cleanup(func() {
		pods.Stop()
		done.Wait()
	})
	done.Go(func() {
		made := false
		waiting := map[string]bool{}
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*core.Pod)
			if !ok {
				continue
			}
			if pod.Labels["app.kubernetes.io/component"] == "init" {
				made = made || pod.Status.Phase == core.PodSucceeded
			} else if pod.Annotations["test/streams"] == "" && pod.DeletionTimestamp == nil {
				waiting[pod.Name] = true
			}
			if !made {
				continue
			}
			for name := range waiting {
				// A pod that is gone waits no longer: the result does not matter.
				_, _ = p.client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
					[]byte(`{"metadata":{"annotations":{"test/streams":"made"}}}`), meta.PatchOptions{})
				delete(waiting, name)
			}
		}
	})
}
