package spec

import (
	"strings"
	"testing"
)

// TestGPUsThatMatch: names and MiB are those that nvidia-smi shows.
func TestGPUsThatMatch(t *testing.T) {
	type gpu struct {
		model string
		mib   int
	}
	h100, a100, l40s, l4, t4 := gpu{"NVIDIA H100 80GB HBM3", 81559}, gpu{"NVIDIA A100-SXM4-40GB", 40960}, gpu{"NVIDIA L40S", 46068}, gpu{"NVIDIA L4", 23034}, gpu{"Tesla T4", 15360}
	gh200, h200, nvl := gpu{"NVIDIA GH200 480GB", 97871}, gpu{"NVIDIA H200", 143771}, gpu{"NVIDIA H100 NVL", 95830}
	instance, unknown := gpu{"NVIDIA A100-SXM4-40GB MIG 3g.20gb", 0}, gpu{}
	all := []gpu{h100, a100, l40s, l4, t4, gh200, h200, nvl, instance, unknown}
	for _, c := range []struct {
		asks GPU
		want []gpu
	}{
		{GPU{}, all},
		{GPU{Model: "H100"}, []gpu{h100, nvl}},
		{GPU{Model: "h100 80gb"}, []gpu{h100}},
		{GPU{Model: "H100-80GB"}, []gpu{h100}},
		{GPU{Model: "80GB H100"}, []gpu{h100}},
		{GPU{Model: "H200"}, []gpu{h200}},
		{GPU{Model: "L4"}, []gpu{l4}},
		{GPU{Model: "A100"}, []gpu{a100}},
		{GPU{Model: "A100 MIG"}, []gpu{instance}},
		{GPU{Model: "mig 3g.20gb"}, []gpu{instance}},
		{GPU{Model: "tesla"}, []gpu{t4}},
		{GPU{Model: "B200"}, nil},
		{GPU{Memory: "80GiB"}, []gpu{h100, gh200, h200, nvl}},
		{GPU{Memory: "80GB"}, []gpu{h100, gh200, h200, nvl}},
		{GPU{Memory: "81559MiB"}, []gpu{h100, gh200, h200, nvl}},
		{GPU{Memory: "81560MiB"}, []gpu{gh200, h200, nvl}},
		{GPU{Memory: "141GB"}, []gpu{h200}},
		{GPU{Memory: "24GB"}, []gpu{h100, a100, l40s, gh200, h200, nvl, l4}},
		{GPU{Memory: "25GB"}, []gpu{h100, a100, l40s, gh200, h200, nvl}},
		{GPU{Memory: "16GB"}, []gpu{h100, a100, l40s, l4, t4, gh200, h200, nvl}},
		{GPU{Model: "H100", Memory: "94GB"}, []gpu{nvl}},
		{GPU{Memory: "9999999GiB"}, nil},
	} {
		want := map[gpu]bool{}
		for _, g := range c.want {
			want[g] = true
		}
		for _, g := range all {
			if got := c.asks.Matches(g.model, g.mib); got != want[g] {
				t.Errorf("%s is matched by %q with %d MiB: %t", c.asks, g.model, g.mib, got)
			}
		}
	}
}

func TestMemoryOfGPUs(t *testing.T) {
	for text, want := range map[GPUMemory]int{"": 0, "80GB": 76294, "80GiB": 76294, "81559MiB": 81559, "1MiB": 1, "9999999GB": 9536742211} {
		if got := text.MiB(); got != want {
			t.Errorf("%q is %d MiB, want %d", text, got, want)
		}
	}
}

// TestGPUsOfJobsThatCannotHaveThem: each error says what to do.
func TestGPUsOfJobsThatCannotHaveThem(t *testing.T) {
	s := selfRegistered()
	s.GPU = &GPU{Model: "H100"}
	s.Secrets = map[string]string{"CUDA_VISIBLE_DEVICES": "env:VISIBLE"}
	bad := s.WithDefaults().Check()
	if len(bad) != 2 || bad[0].Path != "gpu" || bad[1].Path != "secrets.CUDA_VISIBLE_DEVICES" {
		t.Fatalf("got %v", bad)
	}
	for _, f := range bad {
		if !strings.Contains(f.Message, "leave") {
			t.Errorf("%s does not say what to do", f)
		}
	}
}

// TestGPUText: as sentences name what a job waits for.
func TestGPUText(t *testing.T) {
	for g, want := range map[GPU]string{
		{}:                               "a GPU",
		{Model: "H100"}:                  "a GPU of model H100",
		{Memory: "40GB"}:                 "a GPU of at least 40GB",
		{Model: "A100", Memory: "80GiB"}: "a GPU of model A100 with at least 80GiB",
	} {
		if g.String() != want {
			t.Errorf("%q, want %q", g.String(), want)
		}
	}
}
