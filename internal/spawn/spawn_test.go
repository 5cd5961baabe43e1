package spawn

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// limitOf reads a process's limit for message queues.
func limitOf(t *testing.T, pid int) string {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Max msgqueue size"); ok {
			return strings.Fields(rest)[0]
		}
	}
	t.Fatal("no limit for message queues")
	return ""
}

// end kills a process that was started.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestOnlyMarkedProcessesHaveAMark(t *testing.T) {
	own := limitOf(t, os.Getpid())
	var marked sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		marked.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				cmd := exec.Command("sleep", "1000")
				m := Mark()
				if err := StartMarked(cmd, m); err != nil {
					t.Error(err)
					return
				}
				if got := limitOf(t, cmd.Process.Pid); got != fmt.Sprint(m) || got == own {
					t.Errorf("marked %d, has %s, its parent has %s", m, got, own)
				}
				end(cmd)
			}
		})
	}
	for range 200 {
		cmd := exec.Command("sleep", "1000")
		if err := Start(cmd); err != nil {
			t.Fatal(err)
		}
		if got := limitOf(t, cmd.Process.Pid); got != own {
			t.Errorf("a process without a mark has %s, its parent %s", got, own)
		}
		end(cmd)
	}
	close(stop)
	marked.Wait()
	if got := limitOf(t, os.Getpid()); got != own {
		t.Errorf("this process keeps %s, had %s", got, own)
	}
}
