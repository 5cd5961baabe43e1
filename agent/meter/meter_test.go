package meter

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/usage"
)

// machine is a procfs of ours.
type machine struct {
	t   *testing.T
	dir string
}

func (m machine) file(text string, path ...string) {
	m.t.Helper()
	name := filepath.Join(append([]string{m.dir}, path...)...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// process writes the stat file of one that has used so many ticks and has so many pages.
func (m machine) process(pid, parent, start, ticks, pages int) {
	m.t.Helper()
	m.file(fmt.Sprintf("%d (a (b) c) S %d 1 1 0 -1 4194304 0 0 0 0 %d %d 7 7 20 0 1 0 %d 4096 %d 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0", pid, parent, ticks/2, ticks-ticks/2, start, pages), fmt.Sprint(pid), "stat")
}

func (m machine) busy(user, idle int) {
	m.t.Helper()
	m.file(fmt.Sprintf("cpu  %d 0 0 %d 5 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\nintr 5\n", user, idle), "stat")
}

func TestWhatIsUsed(t *testing.T) {
	m := machine{t, t.TempDir()}
	m.file("MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n", "meminfo")
	m.busy(1000, 5000)
	m.process(1, 0, 1, 50000, 9)
	m.process(10, 1, 100, 300, 20)  // a worker
	m.process(11, 10, 110, 100, 2)  // what it has started
	m.process(12, 11, 110, 100, 3)  // and what that has
	m.process(20, 1, 100, 7000, 40) // another worker
	m.process(30, 1, 100, 9000, 80) // of another program
	meter, now := New(m.dir), time.Now()
	if r, ok := meter.Read(now, []int{10, 20, 99}); ok {
		t.Fatalf("an average over no time: %+v", r)
	}
	m.busy(1600, 5400)
	m.process(10, 1, 100, 700, 21)
	m.process(11, 10, 110, 150, 2)
	m.process(12, 11, 999, 50, 3) // another process with the same number
	m.process(13, 12, 120, 500, 4)
	m.process(30, 1, 100, 9900, 80)
	r, ok := meter.Read(now.Add(5*time.Second), []int{10, 20, 99})
	page := uint64(os.Getpagesize())
	want := map[int]usage.Of{10: {Processors: 2, Memory: 30 * page}, 20: {Memory: 40 * page}}
	if !ok || !maps.Equal(r.Workers, want) {
		t.Errorf("%v: %+v, want %+v", ok, r.Workers, want)
	}
	if r.Machine != (usage.Of{Processors: 1.2, Memory: 600 << 10}) || r.Processors != 2 || r.Memory != 1000<<10 {
		t.Errorf("the machine: %+v", r)
	}
	// A process that has run for long becomes a worker, after a time without any: unknown at first.
	if r, ok := meter.Read(now.Add(10*time.Second), nil); !ok || len(r.Workers) > 0 {
		t.Errorf("without workers: %+v", r)
	}
	if r, ok := meter.Read(now.Add(15*time.Second), []int{30}); !ok || len(r.Workers) > 0 {
		t.Errorf("the first look: %+v", r)
	}
	m.process(30, 1, 100, 10000, 80)
	if r, _ := meter.Read(now.Add(20*time.Second), []int{30, 10}); r.Workers[30] != (usage.Of{Processors: 0.2, Memory: 80 * page}) || r.Workers[10].Processors != 0 {
		t.Errorf("the second: %+v", r.Workers)
	}
	if _, ok := New(t.TempDir()).Read(now, nil); ok {
		t.Error("a folder without anything is read")
	}
}

// TestThisMachine: a process that only computes is seen to use a processor, as far as it gets one.
func TestThisMachine(t *testing.T) {
	c := exec.Command("sh", "-c", "(while :; do :; done) & wait")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	}()
	meter, workers := New("/proc"), []int{c.Process.Pid, os.Getpid()}
	for end := time.Now().Add(time.Minute); ; {
		if r, ok := meter.Read(time.Now(), workers); ok && r.Workers[workers[0]].Processors > 0.01 {
			if u := r.Workers[os.Getpid()]; u.Memory < 1<<20 || r.Machine.Memory == 0 || r.Memory <= r.Machine.Memory || r.Machine.Processors > float64(r.Processors) {
				t.Errorf("%+v", r)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("it was never seen to use a processor")
		}
		time.Sleep(50 * time.Millisecond) // procfs has no notification
	}
}
