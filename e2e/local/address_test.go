package local

import (
	"regexp"
	"testing"
)

// TestTheAddressOfUpAdmitsItsUser: the address that regroup up prints, given as --server, needs
// nothing else from who has started it, and admits nobody else.
func TestTheAddressOfUpAdmitsItsUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := begin(t, dir, "up", "--no-agent")
	up.prints("regroup is up")
	address := regexp.MustCompile(`regroup is up: (\S+)`).FindStringSubmatch(up.printed())[1]
	if _, errs, code := runLocal(t, dir, patience, "ls", "--server", address); code != 0 {
		t.Errorf("exit %d\n%s", code, errs)
	}
	if _, errs, code := runLocal(t, t.TempDir(), patience, "ls", "--server", address, "--timeout", "5s"); code != 5 {
		t.Errorf("another user: exit %d\n%s", code, errs)
	}
}
