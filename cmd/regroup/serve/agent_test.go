package serve

import (
	"os"
	"testing"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events/errcode"
)

// TestTheNameOfANodeStaysInTheStateFolder: it is refused before it becomes a directory.
func TestTheNameOfANodeStaysInTheStateFolder(t *testing.T) {
	for _, name := range []string{"../../outside", "a/b", "..", "\x1b[2J"} {
		dir := t.TempDir()
		_, err := NewAgent(&boot.Process{Config: boot.Config{StateDir: dir}}, AgentConfig{Node: name, Slots: 1, Advertise: "127.0.0.1"})
		if errcode.Of(err) != errcode.Invalid {
			t.Errorf("%q: %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%q: %v, %v in the state folder", name, left, err)
		}
	}
}
