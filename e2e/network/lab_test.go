package network

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// orphan makes this test binary a process that builds a lab with a process in it, prints its state,
// and waits for its end.
const orphan = "REGROUP_LAB_ORPHAN"

func beOrphan() int {
	l, err := Open(false)
	if err == nil {
		_, err = l.Host("a")
	}
	if err == nil {
		args := l.On("a", "sleep", "600")
		err = exec.Command(args[0], args[1:]...).Start()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("built", l.owner)
	select {}
}

// TestLeftoversAreSwept checks that opening a lab removes a lab whose process was killed, with its
// processes.
func TestLeftoversAreSwept(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), orphan+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	owner, ok := strings.CutPrefix(strings.TrimSpace(line), "built ")
	if !ok {
		t.Fatal(line)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	left := func() (n int) {
		all, err := namespaces()
		must(t, err)
		for _, ns := range all {
			if strings.HasPrefix(ns, owner) {
				n++
			}
		}
		return n
	}
	if left() != 2 {
		t.Fatalf("%d namespaces are left behind, want the switch and the host", left())
	}
	must(t, Sweep())
	if left() != 0 {
		t.Errorf("%d namespaces are left after sweeping", left())
	}
}

// TestProcessesLeftAreAnError checks that closing a lab with running processes is an error.
func TestProcessesLeftAreAnError(t *testing.T) {
	l, err := Open(false)
	must(t, err)
	_, err = l.Host("a")
	must(t, err)
	args := l.On("a", "sleep", "600")
	cmd := exec.Command(args[0], args[1:]...)
	must(t, cmd.Start())
	// The process is in its namespace once its name is no longer ip.
	for name := ""; name != "sleep"; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		must(t, err)
		name = strings.TrimSpace(string(b))
	}
	err = l.Close()
	if err == nil || !strings.Contains(err.Error(), "processes were left: sleep") {
		t.Errorf("closing says %v", err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process that was left has ended well")
	}
}

func TestRulesOfUnknownHosts(t *testing.T) {
	l := &Lab{}
	if l.Break(Cut("a", "b")) == nil || l.Break(Rule{Loss: 1}) == nil {
		t.Error("a link that does not exist was cut")
	}
}
