package kubernetes

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// controller is a controller that extends the control plane, with its definitions and webhooks.
type controller struct {
	program string // in .tools/kubernetes, beside PROGRAM.d with the definitions
	config  string // a file, as --config takes it; CERTIFICATES is the folder of its certificate
	args    []string
	webhook string // port
	metrics string // where else it wants its certificate; empty = nowhere
	// Kinds whose versions its webhook converts, by the names of their definitions; those of the
	// others have the same form.
	converted []string
}

// runController enters the definitions and webhooks of a controller, and runs it until the test
// ends. The API server reaches its webhooks at the loopback interface, where no service has an
// address: what is different from an installation is that, and the certificate.
func (p *controlPlane) runController(t *testing.T, c controller) {
	t.Helper()
	dir := t.TempDir()
	certificates := filepath.Join(dir, "k8s-webhook-server", "serving-certs")
	if err := os.MkdirAll(certificates, 0o700); err != nil {
		t.Fatal(err)
	}
	if c.metrics != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(c.metrics), 0o755), os.Symlink(certificates, c.metrics)); err != nil {
			t.Fatalf("%v (deploy/e2e-kubernetes.sh)", err)
		}
	}
	certificate := filepath.Join(certificates, "tls.crt")
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=webhook",
		"-addext", "subjectAltName=IP:127.0.0.1", "-keyout", filepath.Join(certificates, "tls.key"), "-out", certificate).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	authority, err := os.ReadFile(certificate)
	if err != nil {
		t.Fatal(err)
	}
	hook := func(path string) tree {
		return tree{"url": "https://127.0.0.1:" + c.webhook + path, "caBundle": base64.StdEncoding.EncodeToString(authority)}
	}
	definitions := "../../.tools/kubernetes/" + c.program + ".d"
	for _, o := range documents(t, filepath.Join(definitions, "crd")) {
		if slices.Contains(c.converted, o.GetName()) {
			o.Object["spec"].(tree)["conversion"] = tree{"strategy": "Webhook", "webhook": tree{"clientConfig": hook("/convert"), "conversionReviewVersions": []any{"v1"}}}
		}
		p.condition(t, p.create(t, "", o), "Established")
		eventually(t, o.GetName()+" is served", func(ctx context.Context) error {
			kind, _, err := unstructured.NestedString(o.Object, "spec", "names", "kind")
			if err != nil {
				return err
			}
			group, _, err := unstructured.NestedString(o.Object, "spec", "group")
			if err != nil {
				return err
			}
			groups, err := restmapper.GetAPIGroupResources(p.client.Discovery())
			if err != nil {
				return err
			}
			_, err = restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			return err
		})
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(c.config, "CERTIFICATES", certificates)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir) // where the controller looks for its certificate
	t.Setenv("KUBECONFIG", p.kubeconfig)
	start(t, c.program, append([]string{"--config", config}, c.args...)...)
	eventually(t, c.program+" serves its webhooks", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+c.webhook)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	for _, o := range documents(t, filepath.Join(definitions, "webhook")) {
		o.SetName(c.program + "-" + o.GetName())
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hooks {
			path, _, err := unstructured.NestedString(h.(tree), "clientConfig", "service", "path")
			if err != nil {
				t.Fatal(err)
			}
			h.(tree)["clientConfig"] = hook(path)
		}
		o.Object["webhooks"] = hooks
		p.create(t, "", o)
	}
}

// documents reads the definitions and webhooks in the files of a folder and those below it.
func documents(t *testing.T, folder string) (all []*unstructured.Unstructured) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") || strings.Contains(path, "/patch") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, o := range objects(t, string(text)) {
			switch o.GetKind() {
			case "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
				all = append(all, o)
			}
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: %d definitions, %v (deploy/setup.sh kubernetes)", folder, len(all), err)
	}
	return all
}

// objects decodes the documents of a file.
func objects(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.Object != nil {
			all = append(all, o)
		}
	}
	return all
}

// resource is the interface to objects of a kind; namespace is empty for those that are in none.
func (p *controlPlane) resource(namespace string, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	groups, err := restmapper.GetAPIGroupResources(p.client.Discovery())
	if err != nil {
		return nil, err
	}
	kind := o.GroupVersionKind()
	m, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(p.config)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == "root" {
		return client.Resource(m.Resource), nil
	}
	return client.Resource(m.Resource).Namespace(namespace), nil
}

// create creates an object, with strict validation, once the server knows its kind and reaches the
// webhooks that it asks.
func (p *controlPlane) create(t *testing.T, namespace string, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	var made *unstructured.Unstructured
	eventually(t, fmt.Sprintf("%s %s is created", o.GetKind(), o.GetName()), func(ctx context.Context) error {
		r, err := p.resource(namespace, o)
		if err != nil {
			return err
		}
		made, err = r.Create(ctx, o, meta.CreateOptions{FieldValidation: meta.FieldValidationStrict})
		if err != nil && !apierrors.IsInternalError(err) && !apierrors.IsNotFound(err) && !apierrors.IsServerTimeout(err) {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		return err
	})
	return made
}

// read returns an object as it is now.
func (p *controlPlane) read(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	r, err := p.resource(o.GetNamespace(), o)
	if err != nil {
		return nil, err
	}
	return r.Get(ctx, o.GetName(), meta.GetOptions{})
}

// condition waits until an object has a condition that is true.
func (p *controlPlane) condition(t *testing.T, o *unstructured.Unstructured, want string) {
	t.Helper()
	within(t, 5*time.Minute, fmt.Sprintf("%s %s is %s", o.GetKind(), o.GetName(), want), func(ctx context.Context) error {
		now, err := p.read(ctx, o)
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(now.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, c := range conditions {
			if c := c.(tree); c["type"] == want && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("%v", now.Object["status"])
	})
}
