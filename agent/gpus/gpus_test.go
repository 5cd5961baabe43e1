package gpus

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/devices"
)

// machine puts an nvidia-smi first in PATH that says table when it is asked for the GPUs, lines
// when it is asked for a list, and what is in the file state of the folder when it is asked how
// they are; an empty table or state has it fail.
func machine(t *testing.T, table, lines string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"table": table, "lines": lines, "nvidia-smi": `#!/bin/sh
dir=${0%/*}
case "$1" in
-L) cat "$dir/lines" ;;
--query-gpu=uuid,name,memory.total,mig.mode.current) test -s "$dir/table" || { echo "NVIDIA-SMI has failed: no driver"; exit 9; }; cat "$dir/table" ;;
--query-gpu=uuid,pci.bus_id,memory.used,*) test -p "$dir/hang" && { : > "$dir/hangs"; exec cat "$dir/hang"; }; test -s "$dir/state" || { cat "$dir/failure"; exit 15; }; cat "$dir/state" ;;
*) exit 2 ;;
esac
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

const two = "GPU-aa11, NVIDIA H100 80GB HBM3, 81559, Disabled\nGPU-bb22, NVIDIA GB10, [N/A], [N/A]\n"

var found = []devices.GPU{{ID: "GPU-aa11", Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}, {ID: "GPU-bb22", Model: "NVIDIA GB10"}}

func TestFind(t *testing.T) {
	machine(t, two, "")
	for _, c := range []struct {
		which, visible string // "-" = the variable is not set
		want           []devices.GPU
	}{
		{"auto", "-", found},
		{"auto", "1", found[1:]},
		{"auto", "1, 0", []devices.GPU{found[1], found[0]}},
		{"auto", "GPU-bb,GPU-aa11", []devices.GPU{found[1], found[0]}},
		{"auto", "0,-1,1", found[:1]},
		{"auto", "2,0", nil},
		{"auto", "", nil},
		{"none", "-", nil},
		{"3, GPU-cc", "0", []devices.GPU{{ID: "3"}, {ID: "GPU-cc"}}},
	} {
		t.Run(c.which+" of "+c.visible, func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
			if c.visible == "-" {
				os.Unsetenv("CUDA_VISIBLE_DEVICES")
			}
			if got, err := Find(t.Context(), c.which); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
	for _, which := range []string{"0,,1", "0,0", " "} {
		if got, err := Find(t.Context(), which); err == nil || !strings.Contains(err.Error(), "--gpus") {
			t.Errorf("%q: %v, %v", which, got, err)
		}
	}
}

func TestInstances(t *testing.T) {
	machine(t, "GPU-aa11, NVIDIA A100-SXM4-40GB, 40960, Enabled\nGPU-bb22, NVIDIA A100-SXM4-40GB, 40960, Disabled\n", `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa11)
  MIG 3g.20gb     Device  0: (UUID: MIG-0001)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-0002)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb22)
`)
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	os.Unsetenv("CUDA_VISIBLE_DEVICES")
	want := []devices.GPU{
		{ID: "MIG-0001", Model: "NVIDIA A100-SXM4-40GB MIG 3g.20gb"},
		{ID: "MIG-0002", Model: "NVIDIA A100-SXM4-40GB MIG 1g.5gb+me"},
		{ID: "GPU-bb22", Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960},
	}
	if got, err := Find(t.Context(), Auto); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWhatFails: a machine that has the program alone has no GPU that could be used. Of one that
// has a driver it is not known.
func TestWhatFails(t *testing.T) {
	driver := filepath.Join(t.TempDir(), "nvidiactl")
	missing := driver + ".missing"
	if err := os.WriteFile(driver, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for table, says := range map[string]string{
		"":               "exit status 9: NVIDIA-SMI has failed: no driver",
		"what is this\n": `"what is this"`,
	} {
		machine(t, table, "")
		if got, err := find(t.Context(), Auto, missing); got != nil || err != nil {
			t.Errorf("without a driver: %v, %v", got, err)
		}
		if got, err := find(t.Context(), Auto, driver); got != nil || err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "--gpus none") {
			t.Errorf("%v, %v; want %s", got, err, says)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if got, err := find(t.Context(), Auto, driver); got != nil || err != nil {
		t.Errorf("without nvidia-smi: %v, %v", got, err)
	}
}
