package kubernetes

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// addNode adds a simulated node, with room for 8 cores, two GPUs if it is labelled so, and three
// volumes on disks of its own, as a cluster with local disks has them.
func (p *controlPlane) addNode(t *testing.T, name string, labels map[string]string, taints ...core.Taint) {
	t.Helper()
	capacity := core.ResourceList{
		core.ResourceCPU: resource.MustParse("8"), core.ResourceMemory: resource.MustParse("16Gi"), core.ResourcePods: resource.MustParse("32"),
	}
	all := map[string]string{core.LabelHostname: name}
	for k, v := range labels {
		all[k] = v
	}
	if all["accelerator"] == "gpu" {
		capacity["nvidia.com/gpu"] = resource.MustParse("2")
	}
	n := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: all}, Spec: core.NodeSpec{Taints: taints}}
	n.Status = core.NodeStatus{Capacity: capacity, Allocatable: capacity}
	if _, err := p.client.CoreV1().Nodes().Create(t.Context(), n, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		v := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}}
		v.Spec = core.PersistentVolumeSpec{
			Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("10Gi")}, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain, StorageClassName: "local",
			PersistentVolumeSource: core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: fmt.Sprintf("/disks/%d", i)}},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{
				{MatchExpressions: []core.NodeSelectorRequirement{{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{name}}}},
			}}},
		}
		if _, err := p.client.CoreV1().PersistentVolumes().Create(t.Context(), v, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, name+" is ready", func(ctx context.Context) error {
		n, err := p.client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == core.NodeReady && c.Status == core.ConditionTrue && len(n.Spec.Taints) == len(taints) {
				return nil
			}
		}
		return fmt.Errorf("%v, taints %v", n.Status.Conditions, n.Spec.Taints)
	})
}

// addStorageClass makes local volumes the default: they are bound when a pod that wants one is
// scheduled.
func (p *controlPlane) addStorageClass(t *testing.T) {
	t.Helper()
	mode := storage.VolumeBindingWaitForFirstConsumer
	class := &storage.StorageClass{
		ObjectMeta:  meta.ObjectMeta{Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode,
	}
	if _, err := p.client.StorageV1().StorageClasses().Create(t.Context(), class, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addNamespace makes a namespace that takes only pods of the strictest Pod Security standard, with
// the secrets of docs/kubernetes.md.
func (p *controlPlane) addNamespace(t *testing.T, name string) {
	t.Helper()
	n := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
	}}}
	if _, err := p.client.CoreV1().Namespaces().Create(t.Context(), n, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range identities(t) {
		strict := meta.CreateOptions{FieldValidation: meta.FieldValidationStrict}
		if _, err := p.client.CoreV1().Secrets(name).Create(t.Context(), s, strict); err != nil {
			t.Fatalf("secret %s: %v", s.Name, err)
		}
	}
	eventually(t, "the default account of "+name, func(ctx context.Context) error {
		_, err := p.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", meta.GetOptions{})
		return err
	})
	p.serveStreams(t, name)
}

// identities are the secrets that deploy/helm/secrets.sh prints of a new directory of identities,
// and the two of the gateway.
func identities(t *testing.T) (secrets []*core.Secret) {
	t.Helper()
	auth := filepath.Join(t.TempDir(), "auth")
	for _, args := range [][]string{
		{"init", "--host", "lab-nats-0.lab-nats", "--host", "lab-nats-1.lab-nats", "--host", "lab-nats-2.lab-nats"},
		{"issue", "agent", "nodes", "--node", "*"},
	} {
		if out, err := exec.Command("../../bin/regroup", append([]string{"auth", "--auth", auth}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("regroup auth %v: %v (make build)\n%s", args, err, out)
		}
	}
	out, err := exec.Command("../../deploy/helm/secrets.sh", auth).Output()
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(out), "---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		s := new(core.Secret)
		if err := yaml.UnmarshalStrict([]byte(document), s); err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, s)
	}
	server, err := os.ReadFile(filepath.Join(auth, "tls/server.pem"))
	if err != nil {
		t.Fatal(err)
	}
	var certificate, key bytes.Buffer
	for block, rest := pem.Decode(server); block != nil; block, rest = pem.Decode(rest) {
		to := &certificate
		if block.Type != "CERTIFICATE" {
			to = &key
		}
		if err := pem.Encode(to, block); err != nil {
			t.Fatal(err)
		}
	}
	return append(secrets,
		&core.Secret{ObjectMeta: meta.ObjectMeta{Name: "regroup-gateway"}, StringData: map[string]string{"token": "a-token-of-a-test"}},
		&core.Secret{
			ObjectMeta: meta.ObjectMeta{Name: "regroup-gateway-tls"}, Type: core.SecretTypeTLS,
			Data: map[string][]byte{core.TLSCertKey: certificate.Bytes(), core.TLSPrivateKeyKey: key.Bytes()},
		})
}

// nodesOf returns the nodes of the ready pods of a component, sorted: a node with two pods is there
// twice.
func (p *controlPlane) nodesOf(ctx context.Context, namespace, component string) (nodes []string, err error) {
	pods, err := p.client.CoreV1().Pods(namespace).List(ctx, meta.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c core.PodCondition) bool {
			return c.Type == core.PodReady && c.Status == core.ConditionTrue
		}) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// onNodes waits until a component has ready pods on exactly these nodes.
func (p *controlPlane) onNodes(t *testing.T, namespace, component string, want ...string) {
	t.Helper()
	eventually(t, component+" is where it should be", func(ctx context.Context) error {
		got, err := p.nodesOf(ctx, namespace, component)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("on %v, want %v", got, want)
		}
		return err
	})
}
