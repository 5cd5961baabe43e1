// Package pytorch finds the Python that tests use PyTorch with.
package pytorch

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Python returns the interpreter that deploy/torch.sh names, and ends the test if there is none.
func Python(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../deploy/torch.sh")
	out, err := exec.Command(script).Output()
	python := strings.TrimSpace(string(out))
	if err != nil || python == "" {
		t.Fatalf("PyTorch is missing, install it with: make torch (%v)", err)
	}
	return python
}
