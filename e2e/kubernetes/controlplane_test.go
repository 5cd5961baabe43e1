package kubernetes

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const token = "of-a-test"

// controlPlane is a running control plane. Its kubeconfig is that of an administrator.
type controlPlane struct {
	kubeconfig string
	client     *clientset.Clientset
	config     *rest.Config
}

// startControlPlane starts all components and waits until each is ready. They end with the test.
// The stages are what kwok says of nodes and pods.
func startControlPlane(t *testing.T, stages string) *controlPlane {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := filepath.Join(dir, "account.key")
	if out, err := exec.Command("openssl", "genrsa", "-out", key, "2048").CombinedOutput(); err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	ports := freePorts(t, 3)
	etcd := "http://127.0.0.1:" + ports[0]
	start(t, "etcd", "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://127.0.0.1:"+ports[1], "--initial-advertise-peer-urls", "http://127.0.0.1:"+ports[1],
		"--initial-cluster", "default=http://127.0.0.1:"+ports[1])
	certificates := filepath.Join(dir, "apiserver")
	start(t, "kube-apiserver", "--etcd-servers", etcd, "--cert-dir", certificates,
		"--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", ports[2],
		"--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.96.0.0/16",
		"--authorization-mode", "RBAC", "--token-auth-file", write("tokens", token+",admin,admin,system:masters\n"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", key, "--service-account-signing-key-file", key)

	p := &controlPlane{kubeconfig: filepath.Join(dir, "kubeconfig")}
	c := api.NewConfig()
	c.Clusters["test"] = &api.Cluster{Server: "https://127.0.0.1:" + ports[2], CertificateAuthority: filepath.Join(certificates, "apiserver.crt")}
	c.AuthInfos["admin"] = &api.AuthInfo{Token: token}
	c.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "admin"}
	c.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*c, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server is ready", func(ctx context.Context) (err error) {
		if p.config, err = clientcmd.BuildConfigFromFlags("", p.kubeconfig); err != nil {
			return err
		}
		p.config.QPS, p.config.Burst = 200, 400
		if p.client, err = clientset.NewForConfig(p.config); err != nil {
			return err
		}
		return p.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	start(t, "kube-controller-manager", "--kubeconfig", p.kubeconfig, "--leader-elect=false", "--secure-port", "0",
		"--service-account-private-key-file", key, "--root-ca-file", filepath.Join(certificates, "apiserver.crt"))
	start(t, "kube-scheduler", "--kubeconfig", p.kubeconfig, "--leader-elect=false", "--secure-port", "0")
	start(t, "kwok", "--kubeconfig", p.kubeconfig, "--config", stages, "--manage-all-nodes", "--node-lease-duration-seconds", "40")
	return p
}

// start runs a tool until the test ends.
func start(t *testing.T, tool string, args ...string) {
	t.Helper()
	startProgram(t, filepath.Join("../../.tools/kubernetes", tool), args...)
}

// startProgram runs a program until the test ends. What it has written is printed if the test
// fails.
func startProgram(t *testing.T, path string, args ...string) {
	t.Helper()
	tool := filepath.Base(path)
	log, err := os.Create(filepath.Join(t.TempDir(), tool+".log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, args...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatalf("%s: %v (deploy/setup.sh kubernetes)", tool, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("%s ended before the test: %v", tool, err)
		default:
			if err := c.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-ended
		}
		if t.Failed() {
			text, err := os.ReadFile(log.Name())
			t.Logf("%s: %v\n%s", tool, err, text[max(0, len(text)-4000):])
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
}

// freePorts returns ports of the loopback interface that were free a moment ago.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// eventually calls holds until it returns nil, for two minutes at most.
func eventually(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	within(t, 2*time.Minute, what, holds)
}

// within calls holds until it returns nil.
func within(t *testing.T, limit time.Duration, what string, holds func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		if err := holds(ctx); err == nil || ctx.Err() == nil && !strings.Contains(err.Error(), "rate limiter") {
			last = err // not that the time is over
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}
