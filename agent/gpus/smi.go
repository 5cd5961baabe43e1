package gpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/internal/spawn"
)

// listWithin is how long nvidia-smi may take. Where no process keeps the driver loaded it starts
// all GPUs first, a second or two for each.
const listWithin = time.Minute

// list asks nvidia-smi.
func list(ctx context.Context) ([]devices.GPU, error) {
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
func parse(table string) (found []devices.GPU, divided bool, err error) {
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) == 1 && f[0] == "" {
			continue
		}
		if len(f) != 4 || !strings.HasPrefix(f[0], "GPU-") {
			return nil, false, fmt.Errorf("nvidia-smi: %q is not the id, name, memory and mode of a GPU", strings.TrimSpace(line))
		}
		memory, _ := strconv.Atoi(f[2]) // 0 = unknown
		found = append(found, devices.GPU{ID: f[0], Model: f[1], MemoryMiB: memory})
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
func instances(gpus []devices.GPU, lines string) (found []devices.GPU) {
	parts := map[string][]devices.GPU{}
	var of devices.GPU
	for line := range strings.Lines(lines) {
		_, id, ok := strings.Cut(strings.TrimRight(line, ")\n"), "(UUID: ")
		f := strings.Fields(line)
		switch {
		case !ok:
		case strings.HasPrefix(line, "GPU "):
			of = devices.GPU{ID: id}
			for _, g := range gpus {
				if g.ID == id {
					of = g
				}
			}
		case f[0] == "MIG" && len(f) > 1:
			parts[of.ID] = append(parts[of.ID], devices.GPU{ID: id, Model: of.Model + " MIG " + f[1]})
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
