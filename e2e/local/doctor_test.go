package local

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/e2e/pytorch"
)

type diagnosis struct{ Check, State, Found, Fix string }

// doctor returns what `regroup doctor -o json` finds, by check; its exit code is 1 if there is a
// problem.
func doctor(t *testing.T, python string) map[string]diagnosis {
	t.Helper()
	out, errs, code := runLocal(t, t.TempDir(), patience, "doctor", "--python", python, "-o", "json")
	var all []diagnosis
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	found, want := map[string]diagnosis{}, 0
	for _, d := range all {
		if (d.State == "ok") != (d.Fix == "") {
			t.Errorf("a finding without a thing to do, or the reverse: %+v", d)
		}
		if d.State == "problem" {
			want = 1
		}
		found[d.Check] = d
	}
	if code != want {
		t.Errorf("exit %d, want %d:\n%s%s", code, want, out, errs)
	}
	return found
}

// TestDoctor examines an interpreter that has PyTorch, and one that does not exist.
func TestDoctor(t *testing.T) {
	found := doctor(t, pytorch.Python(t))
	for _, check := range []string{"python", "torch", "torch.distributed", "tcpstore", "gloo"} {
		d := found[check]
		slow := check == "torch" && d.State == "note" && strings.Contains(d.Found, "imported in") // on a busy machine
		if d.State != "ok" && !slow {
			t.Errorf("%s: %+v (PyTorch is installed with: make torch)", check, d)
		}
	}
	for _, check := range []string{"host name", "interface", "advertised address", "port 29500", "/dev/shm", "open files", "folder", "process_vm_readv", "cpu limit", "gpus", "environment", "server"} {
		if found[check].Found == "" {
			t.Errorf("%s is not checked", check)
		}
	}
	missing := doctor(t, "/nonexistent/python")
	if d := missing["python"]; d.State != "problem" || !strings.Contains(d.Found, "no such file") || !strings.Contains(d.Fix, "--python") {
		t.Errorf("an interpreter that does not exist: %+v", d)
	}
	if _, checked := missing["torch"]; checked || missing["/dev/shm"].Found == "" {
		t.Errorf("without an interpreter torch is not checked, and all else is: %+v", missing)
	}
}
