// Package gpus finds the GPUs of a machine that workers may use.
//
// Those of NVIDIA are listed by nvidia-smi, which comes with their driver: this binary is static,
// and loads no library of others.
package gpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/spawn"
)

// Words for Find.
const (
	Auto = "auto"
	None = "none"
)

const (
	// visible is CUDA's variable with the GPUs that a process may use.
	visible = "CUDA_VISIBLE_DEVICES"
	// control is the file of the driver. Where it is missing there is no GPU that could be used.
	control = "/dev/nvidiactl"
	// listWithin is how long nvidia-smi may take. Where no process keeps the driver loaded it
	// starts all GPUs first, a second or two for each.
	listWithin = time.Minute
)

// Find returns the GPUs that workers may use, in the order of their numbers:
//
//	auto       those that nvidia-smi lists, none if there is no such program; of these the ones
//	           that CUDA_VISIBLE_DEVICES names, if that is set
//	none       none
//	otherwise  names as CUDA_VISIBLE_DEVICES has them, such as 0,1,2,3 or GPU-8f1c9d0e: these,
//	           without a look at the machine
//
// A GPU that is divided (MIG) stands for its instances.
func Find(ctx context.Context, which string) ([]events.GPU, error) {
	return find(ctx, which, control)
}

func find(ctx context.Context, which, control string) ([]events.GPU, error) {
	switch which {
	case Auto, "":
	case None:
		return nil, nil
	default:
		return declared(which)
	}
	found, err := list(ctx)
	if err != nil {
		if _, missing := os.Stat(control); missing != nil {
			return nil, nil //nolint:nilerr // a program without a driver
		}
		return nil, errcode.Errorf(errcode.Unavailable, "the GPUs of this machine are unknown: %w; repair the driver, or say which there are: --gpus none, or --gpus 0,1", err)
	}
	if names, set := os.LookupEnv(visible); set {
		return among(found, names), nil
	}
	return found, nil
}

func declared(names string) (found []events.GPU, err error) {
	seen := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		if name == "" || seen[name] {
			return nil, errcode.Errorf(errcode.Invalid, "--gpus: %q is none of auto, none, and different names separated by commas, such as 0,1", names)
		}
		seen[name] = true
		found = append(found, events.GPU{ID: name})
	}
	return found, nil
}

// list asks nvidia-smi.
func list(ctx context.Context) ([]events.GPU, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	table, err := output(ctx, "--query-gpu=uuid,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits")
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, divided, err := parse(table)
	if err != nil || !divided {
		return found, err
	}
	if table, err = output(ctx, "-L"); err != nil {
		return nil, err
	}
	return instances(found, table), nil
}

// output runs nvidia-smi.
func output(ctx context.Context, arguments ...string) (string, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "nvidia-smi", arguments...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second
	err := spawn.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil || errors.Is(err, exec.ErrNotFound) {
		return out.String(), err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("has not ended within %v", listWithin)
	}
	// It says what is wrong on its standard output.
	text := strings.Join(strings.Fields(said.String()+" "+out.String()), " ")
	return "", fmt.Errorf("nvidia-smi: %w: %s", err, text)
}

// parse reads the table of GPUs: its lines are like
//
//	GPU-8f1c9d0e-..., NVIDIA H100 80GB HBM3, 81559, Disabled
//
// with [N/A] where there is nothing to say. divided: some of them are.
func parse(table string) (found []events.GPU, divided bool, err error) {
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) == 1 && f[0] == "" {
			continue
		}
		if len(f) != 4 || !strings.HasPrefix(f[0], "GPU-") {
			return nil, false, fmt.Errorf("nvidia-smi: %q is not the id, name, memory and mode of a GPU", strings.TrimSpace(line))
		}
		memory, _ := strconv.Atoi(f[2]) // 0 = unknown
		found = append(found, events.GPU{ID: f[0], Model: f[1], MemoryMiB: memory})
		divided = divided || f[3] == "Enabled"
	}
	return found, divided, nil
}

// instances replaces divided GPUs by their instances, which have lines like
//
//	GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-...)
//	  MIG 3g.20gb     Device  0: (UUID: MIG-b8a2e2f0-...)
//
// How much memory they have is not said, but for a round number in the name of their kind.
func instances(gpus []events.GPU, lines string) (found []events.GPU) {
	parts := map[string][]events.GPU{}
	var of events.GPU
	for line := range strings.Lines(lines) {
		_, id, ok := strings.Cut(strings.TrimRight(line, ")\n"), "(UUID: ")
		f := strings.Fields(line)
		switch {
		case !ok:
		case strings.HasPrefix(line, "GPU "):
			of = events.GPU{ID: id}
			for _, g := range gpus {
				if g.ID == id {
					of = g
				}
			}
		case f[0] == "MIG" && len(f) > 1:
			parts[of.ID] = append(parts[of.ID], events.GPU{ID: id, Model: of.Model + " MIG " + f[1]})
		}
	}
	for _, g := range gpus {
		if divided := parts[g.ID]; divided != nil {
			found = append(found, divided...)
		} else {
			found = append(found, g)
		}
	}
	return found
}

// among returns the GPUs that a value of CUDA_VISIBLE_DEVICES names, as CUDA reads it: numbers, or
// beginnings of ids; the first one that names none hides what follows.
func among(all []events.GPU, names string) (found []events.GPU) {
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		at := -1
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(all) {
			at = n
		}
		for i, g := range all {
			if strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-") {
				if strings.HasPrefix(g.ID, name) {
					at = i
				}
			}
		}
		if at < 0 {
			return found
		}
		found = append(found, all[at])
	}
	return found
}
