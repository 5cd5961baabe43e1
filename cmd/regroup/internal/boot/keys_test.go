package boot

import (
	"testing"

	"github.com/regroup-io/regroup/e2e/terminal"
)

// TestBackground: a terminal that is not the one of this process is not read by another one of its
// own.
func TestBackground(t *testing.T) {
	_, tty := terminal.Open(t)
	if Background(tty) {
		t.Error("a terminal without a process counts as read by another one")
	}
}
