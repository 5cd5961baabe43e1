package gpus

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/internal/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a machine whose GPUs are watched.
type watched struct {
	t    *testing.T
	dir  string
	log  *os.File // what the kernel says
	seen chan seen
}

type seen struct {
	gpus  []devices.GPU
	fault bool
}

func watch(t *testing.T, lines string, all []devices.GPU, state string) *watched {
	t.Helper()
	w := &watched{t: t, dir: machine(t, two, lines), seen: make(chan seen)}
	path := filepath.Join(w.dir, "kmsg")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.log, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	w.state(state)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h := Health{Every: 20 * time.Millisecond, Log: path, Uncorrected: 10, Logger: slog.New(slog.DiscardHandler)}
		Watch(ctx, h, all, func(gpus []devices.GPU, fault bool) {
			select {
			case w.seen <- seen{gpus, fault}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = w.log.Close()
	})
	return w
}

// state is what nvidia-smi says from now on; one line begins with FAIL: it fails with the rest.
func (w *watched) state(text string) {
	w.t.Helper()
	failure, failed := strings.CutPrefix(text, "FAIL ")
	if failed {
		text = ""
		w.write("failure", failure)
	}
	w.write("state", text)
}

// write replaces a file at once: nvidia-smi may be reading it.
func (w *watched) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) kernel(record string) {
	w.t.Helper()
	if _, err := w.log.WriteString(record); err != nil {
		w.t.Fatal(err)
	}
}

// until returns what was seen first for which a condition holds.
func (w *watched) until(what string, ok func(seen) bool) seen {
	w.t.Helper()
	deadline := time.After(time.Minute)
	var last seen
	for {
		select {
		case last = <-w.seen:
			if ok(last) {
				return last
			}
		case <-deadline:
			w.t.Fatalf("never %s: %s", what, describe(last.gpus))
		}
	}
}

func describe(gpus []devices.GPU) string {
	var b strings.Builder
	for _, g := range gpus {
		fmt.Fprintf(&b, "%s: ", g.ID)
		if r := g.Reading; r != nil {
			show := func(name string, v any) { fmt.Fprintf(&b, "%s %v ", name, v) }
			if r.UsedMiB != nil {
				show("used", *r.UsedMiB)
			}
			if r.BusyPercent != nil {
				show("busy", *r.BusyPercent)
			}
			if r.Celsius != nil {
				show("celsius", *r.Celsius)
			}
			if r.Corrected != nil {
				show("corrected", *r.Corrected)
			}
			if r.Uncorrected != nil {
				show("uncorrected", *r.Uncorrected)
			}
			if r.Xids != nil {
				show("xids", *r.Xids)
				show("last", r.LastXid)
			}
		} else {
			b.WriteString("unknown ")
		}
		if f := g.Fault; f != nil {
			fmt.Fprintf(&b, "fault %s", f.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

const (
	rowA = "GPU-aa11, 00000000:3B:00.0, 1024, 87, 65, 3, 0\n"
	rowB = "GPU-bb22, 00000000:AF:00.0, 0, [N/A], 41, [N/A], [N/A]\n"
)

func TestWhatIsRead(t *testing.T) {
	w := watch(t, "", found, rowA+rowB)
	const want = "GPU-aa11: used 1024 busy 87 celsius 65 corrected 3 uncorrected 0 xids 0 last 0 \nGPU-bb22: used 0 celsius 41 xids 0 last 0 \n"
	first := w.until("read", func(seen) bool { return true })
	if got := describe(first.gpus); got != want || first.fault {
		t.Errorf("%s(fault: %v)\nwant\n%s", got, first.fault, want)
	}
	if at := first.gpus[0].Reading.At; time.Since(at) > time.Minute || at.After(time.Now()) {
		t.Errorf("read at %s", at)
	}
	// What cannot be read is unknown, and no fault.
	for _, state := range []string{"FAIL Failed to initialize NVML: Driver/library version mismatch", "No devices were found\n", rowA + "GPU-bb22, a field, more, than, was, asked, for, here\n"} {
		w.state(state)
		gone := w.until("unknown", func(s seen) bool { return s.gpus[0].Reading == nil })
		if got := describe(gone.gpus); got != "GPU-aa11: unknown \nGPU-bb22: unknown \n" || gone.fault {
			t.Errorf("%s(fault: %v)", got, gone.fault)
		}
		w.state(rowA + rowB)
		w.until("known again", func(s seen) bool { return s.gpus[0].Reading != nil })
	}
}

func TestFaultsOfGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		state, kernel string
		want          string // reason for the fault of the first GPU
	}{
		"not listed any more": {state: rowB, want: "nvidia-smi does not list it any more"},
		"lost":                {state: "FAIL Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU", want: "nvidia-smi cannot reach it: GPU is lost. Reboot the system to recover this GPU"},
		"not readable":        {state: "[GPU is lost], 00000000:3B:00.0, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n" + rowB, want: "nvidia-smi cannot read it: GPU is lost"},
		"errors of its memory": {
			state: "GPU-aa11, 00000000:3B:00.0, 1024, 87, 65, 3, 11\n" + rowB,
			want:  "11 errors of its memory were not corrected since its driver was loaded",
		},
		"off the bus": {
			state:  rowA + rowB,
			kernel: "4,812,5123456,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
			want:   "Xid 79: GPU has fallen off the bus",
		},
		"needs a reset": {
			state:  rowA + rowB,
			kernel: "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n",
			want:   "Xid 154: GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, "", found, rowA+rowB)
			w.until("read", func(s seen) bool { return s.gpus[0].Reading != nil })
			w.state(c.state)
			w.kernel(c.kernel)
			s := w.until("at fault", func(s seen) bool { return s.fault })
			if f := s.gpus[0].Fault; f == nil || f.Reason != c.want || s.gpus[1].Fault != nil {
				t.Errorf("%swant fault %s of the first alone", describe(s.gpus), c.want)
			}
		})
	}
}

// TestAFaultThatLastsIsSeenAgain, and what has happened once is not: its time is that of the event.
func TestAFaultThatLastsIsSeenAgain(t *testing.T) {
	w := watch(t, "", found, rowA+rowB)
	w.kernel("4,1,1,-;NVRM: Xid (PCI:0000:af:00): 62, halt\n")
	w.until("read", func(s seen) bool { return s.gpus[1].Fault != nil })
	w.state(rowB)
	first := w.until("not listed", func(s seen) bool { return s.fault && s.gpus[0].Fault != nil })
	again := w.until("seen later again", func(s seen) bool { return s.gpus[0].Fault.At.After(first.gpus[0].Fault.At) })
	if again.fault {
		t.Error("the same fault is reported as a new one")
	}
	if a, b := first.gpus[1].Fault.At, again.gpus[1].Fault.At; !a.Equal(b) {
		t.Errorf("the error of %s is one of %s now", a, b)
	}
}

// TestAFaultWhileNvidiaSMIHangs: it often does when a GPU fails. What the driver says counts at
// once.
func TestAFaultWhileNvidiaSMIHangs(t *testing.T) {
	w := watch(t, "", found, rowA+rowB)
	w.until("read", func(s seen) bool { return s.gpus[0].Reading != nil })
	if err := unix.Mkfifo(filepath.Join(w.dir, "hang"), 0o600); err != nil {
		t.Fatal(err)
	}
	hang, err := os.OpenFile(filepath.Join(w.dir, "hang"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hang.Close()
	if err := wait.Until(t.Context(), time.Millisecond, func() (bool, error) {
		select {
		case <-w.seen: // from before
		default:
		}
		_, err := os.Stat(filepath.Join(w.dir, "hangs"))
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	w.kernel("4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
	s := w.until("at fault", func(s seen) bool { return s.fault })
	if s.gpus[0].Fault == nil || s.gpus[0].Reading == nil {
		t.Errorf("%swant a fault, and the reading from before nvidia-smi hung", describe(s.gpus))
	}
}

// TestMessagesOfPrograms, and those of others, are no faults. They are counted.
func TestMessagesOfPrograms(t *testing.T) {
	w := watch(t, "", found, rowA+rowB)
	w.until("read", func(s seen) bool { return s.gpus[0].Reading != nil })
	w.kernel("12,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, a program has written this\n")
	w.kernel("4,2,1,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n")
	w.kernel("4,3,1,-;NVRM: GPU at PCI:0000:3b:00: GPU-aa11\n")
	w.kernel("4,4,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, Ch 00000008, MMU Fault\n DEVICE=+pci:0000:3b:00.0\n")
	w.kernel("4,5,1,-;NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)\n")
	s := w.until("counted", func(s seen) bool { return s.gpus[0].Reading != nil && *s.gpus[0].Reading.Xids == 2 })
	if got, want := describe(s.gpus), "GPU-aa11: used 1024 busy 87 celsius 65 corrected 3 uncorrected 0 xids 2 last 154 \nGPU-bb22: used 0 celsius 41 xids 0 last 0 \n"; got != want || s.fault {
		t.Errorf("%s(fault: %v)\nwant\n%s", got, s.fault, want)
	}
}

// TestInstancesShareTheFateOfTheirGPU: what they use themselves is unknown.
func TestInstancesShareTheFateOfTheirGPU(t *testing.T) {
	lines := "GPU 0: NVIDIA A100 (UUID: GPU-aa11)\n  MIG 3g.20gb     Device  0: (UUID: MIG-0001)\n  MIG 3g.20gb     Device  1: (UUID: MIG-0002)\n"
	w := watch(t, lines, []devices.GPU{{ID: "MIG-0001"}, {ID: "MIG-0002"}, {ID: "GPU-bb22"}}, rowA+rowB)
	w.until("read", func(s seen) bool { return s.gpus[0].Reading != nil })
	w.kernel("4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 95, uncontained\n")
	s := w.until("at fault", func(s seen) bool { return s.fault })
	want := "MIG-0001: celsius 65 corrected 3 uncorrected 0 xids 1 last 95 fault Xid 95: uncontained\n" +
		"MIG-0002: celsius 65 corrected 3 uncorrected 0 xids 1 last 95 fault Xid 95: uncontained\n" + "GPU-bb22: used 0 celsius 41 xids 0 last 0 \n"
	if got := describe(s.gpus); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestGPUsThatWereNamed by their numbers, or the beginnings of their ids.
func TestGPUsThatWereNamed(t *testing.T) {
	w := watch(t, "", []devices.GPU{{ID: "1"}, {ID: "GPU-aa"}}, rowA+rowB)
	s := w.until("read", func(s seen) bool { return s.gpus[0].Reading != nil && s.gpus[1].Reading != nil })
	if a, b := *s.gpus[0].Reading.Celsius, *s.gpus[1].Reading.Celsius; a != 41 || b != 65 {
		t.Errorf("%d and %d degrees, want 41 and 65", a, b)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("4,812,5123456,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	f.Add("4,812,5123456,-;NVRM: Xid (0000:3b:00): 13, Graphics SM Warp Exception")
	f.Fuzz(func(t *testing.T, record string) {
		if m, ok := parseRecord(record); ok && (m.address == "" || m.xid < 0 || len(m.text) > len(record)) {
			t.Errorf("%q: %+v", record, m)
		}
	})
}
