package preflight

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/e2e/pytorch"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/figures"
)

func cards(t *testing.T) {
	t.Helper()
	path, err := filepath.Abs("testdata/cards.py")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(TestDevice, path)
}

func named(ids ...string) (gpus []devices.GPU) {
	for _, id := range ids {
		gpus = append(gpus, devices.GPU{ID: id, Model: "NVIDIA H100 80GB HBM3"})
	}
	return gpus
}

// TestFaults: each GPU is measured, or it is said why not, whatever the others do.
func TestFaults(t *testing.T) {
	cards(t)
	r := Run(t.Context(), pytorch.Python(t), named("GPU-a", "GPU-slow", "GPU-wrong", "GPU-memory", "GPU-ecc", "GPU-crash", "GPU-unborn", "GPU-hang"))
	if r.Problem != "" || len(r.GPUs) != 8 || r.Device != "cpu" {
		t.Fatalf("%+v", r)
	}
	of := map[string]figures.GPU{}
	for _, g := range r.GPUs {
		of[g.ID] = g
		if g.Model != "NVIDIA H100 80GB HBM3" || g.At.IsZero() {
			t.Errorf("%+v", g)
		}
	}
	for id, tflops := range map[string]float64{"GPU-a": 650, "GPU-slow": 412} {
		if g := of[id]; g.MatmulTFLOPS != tflops || g.MemoryCopyGB != 3000 || g.MemoryTested == 0 || g.Failure != "" {
			t.Errorf("%+v", g)
		}
	}
	for id, failure := range map[string]string{
		"GPU-wrong": "wrong results: 1 of 65536 elements", "GPU-memory": "wrong memory: 1 of", "GPU-ecc": "uncorrectable ECC error",
		"GPU-crash": "ended by signal 6 in matmul", "GPU-unborn": "No CUDA GPUs are available", "GPU-hang": "hangs: matmul",
	} {
		if g := of[id]; !strings.Contains(g.Failure, failure) || g.NotMeasured == "" {
			t.Errorf("%s: %+v, want %s", id, g, failure)
		}
	}
}

// TestNothingIsMeasured: what is true of all GPUs alike is no failure of one.
func TestNothingIsMeasured(t *testing.T) {
	cards(t)
	python := pytorch.Python(t)
	for ids, problem := range map[string]string{"GPU-crash-1,GPU-crash-2": "the process of each GPU has ended by signal 6", "GPU-unborn": "CUDA has not started: RuntimeError: No CUDA GPUs"} {
		r := Run(t.Context(), python, named(strings.Split(ids, ",")...))
		if !strings.Contains(r.Problem, problem) {
			t.Errorf("%s: %+v", ids, r)
		}
		for _, g := range r.GPUs {
			if g.Failure != "" {
				t.Errorf("%+v", g)
			}
		}
	}
}

func TestThePythonIsMissingOrWrong(t *testing.T) {
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "python")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx     context.Context
		python  string
		gpus    []devices.GPU
		problem string
	}{
		"missing":  {t.Context(), "/nonexistent/python", named("a"), "/nonexistent/python cannot be run"},
		"fails":    {t.Context(), script("echo 'it is too old' >&2; exit 3"), named("a"), "exit status 3: it is too old"},
		"garbage":  {t.Context(), script("echo hello"), named("a"), "printed no figures"},
		"no torch": {t.Context(), script(`echo '{"device": "cuda", "problem": "torch cannot be imported", "gpus": []}'`), named("a"), "torch cannot be imported"},
		"no GPU":   {t.Context(), "python3", nil, "there is no GPU"},
		"too many": {t.Context(), "python3", make([]devices.GPU, gpusMost+1), "at most 128"},
		"ended":    {ended, script("exec sleep 1000"), named("a"), "context canceled"},
	} {
		if r := Run(c.ctx, c.python, c.gpus); !strings.Contains(r.Problem, c.problem) || len(r.GPUs) > 0 {
			t.Errorf("%s: %+v, want %s", name, r, c.problem)
		}
	}
}
