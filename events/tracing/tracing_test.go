package tracing

import (
	"strings"
	"testing"
)

func TestTraces(t *testing.T) {
	root := IncidentTrace("cifar-1a2b", 3)
	child := Child(root, "worker", "node-a/0")
	for _, s := range []string{root, child, JobTrace("cifar-1a2b")} {
		if !Valid(s) {
			t.Errorf("%q is not a traceparent", s)
		}
	}
	if root == IncidentTrace("cifar-1a2b", 4) || TraceID(child) != TraceID(root) || child == root || Child("x") != "" || TraceID("x") != "" {
		t.Errorf("root %q, child %q", root, child)
	}
	for _, s := range []string{
		"", strings.ToUpper(root), "ff" + root[2:], root + "-00", strings.Replace(root, "-", "_", 1),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
	} {
		if Valid(s) {
			t.Errorf("%q passes as a traceparent", s)
		}
	}
}
