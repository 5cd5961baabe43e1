// Package preflight measures the GPUs of a node before a worker runs on them.
//
// A Python program with PyTorch does it, because this binary is static and loads no library: its
// two files are part of the binary, and are written into a folder for as long as it runs.
package preflight

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/internal/spawn"
)

//go:embed measure.py
var measure string

//go:embed measurements.py
var measurements string

const (
	// MeasureWithin is how long all measurements together take at most, once CUDA has started.
	MeasureWithin = 10 * time.Second
	// startWithin is how long CUDA may take to start, on each GPU.
	startWithin = 30 * time.Second
	// EndWithin is when a program that has not ended is killed: importing torch from a cold disk
	// is within it too.
	EndWithin = time.Minute
	// gpusMost bounds what is measured of a node: discovery keeps it.
	gpusMost = 128
	// TestDevice is a variable of tests: the device that takes the place of all GPUs, cpu or a
	// file of Python that makes one with faults.
	TestDevice = "TEST_GPU_DEVICE"
)

// InstallTorch is what to do where GPUs cannot be measured for lack of PyTorch.
const InstallTorch = "install a torch that is built for CUDA for that interpreter, or name another one"

// Report is the result of a run.
type Report struct {
	Device  string  `json:"device,omitempty"` // cuda, or in tests another one
	Torch   string  `json:"torch,omitempty"`
	CUDA    string  `json:"cuda,omitempty"`
	Start   float64 `json:"start_seconds,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // of all measurements
	figures.Preflight
}

// Python returns the interpreter that measures: the one that is named, or as workers find theirs.
func Python(named string) string { return cmp.Or(named, os.Getenv("PYTHON_EXEC"), "python3") }

// Run measures GPUs with an interpreter. What keeps it from that is the report's problem.
func Run(ctx context.Context, python string, gpus []devices.GPU) Report {
	if len(gpus) == 0 {
		return Report{Preflight: figures.Preflight{Problem: "there is no GPU"}}
	}
	if len(gpus) > gpusMost {
		return Report{Preflight: figures.Preflight{Problem: fmt.Sprintf("there are %d GPUs, and at most %d are measured", len(gpus), gpusMost)}}
	}
	r, err := run(ctx, python, gpus)
	if err != nil {
		r.Problem = limits.Shorten(err.Error(), limits.Text.Max)
	}
	now := time.Now().UTC()
	for i := range r.GPUs {
		g := &r.GPUs[i]
		g.At, g.Failure = now, limits.Shorten(g.Failure, reasonMost)
		g.NotMeasured = limits.Shorten(g.NotMeasured, reasonMost)
		if model := modelOf(gpus, g.ID); model != "" {
			g.Model = model
		}
	}
	return r
}

// reasonMost is the length in bytes of a failure: those of all GPUs are in one document.
const reasonMost = 200

func modelOf(gpus []devices.GPU, id string) string {
	for _, g := range gpus {
		if g.ID == id {
			return g.Model
		}
	}
	return ""
}

func run(ctx context.Context, python string, gpus []devices.GPU) (r Report, err error) {
	dir, err := os.MkdirTemp("", "regroup-preflight-")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, text := range map[string]string{"measure.py": measure, "measurements.py": measurements} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return r, err
		}
	}
	ids := make([]string, len(gpus))
	for i, g := range gpus {
		ids[i] = g.ID
	}
	device, measureWithin, startWithin, endWithin := "cuda", MeasureWithin, startWithin, EndWithin
	if named := os.Getenv(TestDevice); named != "" { // it shares the processors with other tests
		device, measureWithin, startWithin, endWithin = named, 3*measureWithin, 6*startWithin, 6*endWithin
	}
	limited, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	cmd := exec.CommandContext(limited, python, filepath.Join(dir, "measure.py"), "--gpus", strings.Join(ids, ","),
		"--seconds", fmt.Sprint(measureWithin.Seconds()), "--start-seconds", fmt.Sprint(startWithin.Seconds()),
		"--parent", fmt.Sprint(os.Getpid()), "--device", device)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second
	// Its processes, one for each GPU, are ended with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := spawn.Start(cmd); err != nil {
		return r, fmt.Errorf("%s cannot be run: %w", python, err)
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case limited.Err() != nil:
		return r, fmt.Errorf("%s has not ended within %s: it imports torch, or waits for a GPU that does not answer", python, endWithin)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return r, fmt.Errorf("%s: %w%s", python, err, lastLine(said.String()))
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return Report{}, fmt.Errorf("%s printed no figures: %w", python, err)
	}
	return r, nil
}

func lastLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			last = ": " + line
		}
	}
	return last
}
