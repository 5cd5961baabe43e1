// Package gpus finds the GPUs of a machine that workers may use.
//
// Those of NVIDIA are listed by nvidia-smi, which comes with their driver: this binary is static,
// and loads no library of others.
package gpus

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
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
func Find(ctx context.Context, which string) ([]devices.GPU, error) {
	return find(ctx, which, control)
}

func find(ctx context.Context, which, control string) ([]devices.GPU, error) {
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

func declared(names string) (found []devices.GPU, err error) {
	seen := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		if name == "" || seen[name] {
			return nil, errcode.Errorf(errcode.Invalid, "--gpus: %q is none of auto, none, and different names separated by commas, such as 0,1", names)
		}
		seen[name] = true
		found = append(found, devices.GPU{ID: name})
	}
	return found, nil
}

// among returns the GPUs that a value of CUDA_VISIBLE_DEVICES names, as CUDA reads it: numbers, or
// beginnings of ids; the first one that names none hides what follows.
func among(all []devices.GPU, names string) (found []devices.GPU) {
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
