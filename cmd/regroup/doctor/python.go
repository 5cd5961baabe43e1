package doctor

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/regroup-io/regroup/internal/spawn"
)

//go:embed probe.py
var probeSource string

// probe is what the Python program has reported.
type probe struct {
	Python, Executable string
	Stage              string // the last one that began; end = all
	PackageError       string `json:"package_error"`
	Regroup            string
	Torch              string
	TorchError         string  `json:"torch_error"`
	Seconds            float64 // of torch's import
	FeaturesError      string  `json:"features_error"`
	Distributed        bool
	Gloo, NCCL, MPI    bool
	Reconfigure        bool
	CUDABuild          string `json:"cuda_build"`
	CUDA               bool
	Devices            int
	CUDAWarning        string `json:"cuda_warning"`
	CUDAError          string `json:"cuda_error"`
	Store              float64
	Libuv              bool
	StoreError         string `json:"store_error"`
	Group              bool
	GroupError         string `json:"group_error"`

	failure error  // of the process
	stderr  string // its last line
}

// runProbe runs the program with an interpreter.
func runProbe(ctx context.Context, python string) probe {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, python, "-c", probeSource)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, time.Second
	err := spawn.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return readProbe(out.Bytes(), errs.String(), err)
}

// readProbe reads what the process has printed; other lines than ours are those of its imports.
func readProbe(out []byte, stderr string, failure error) probe {
	p := probe{failure: failure}
	for line := range bytes.Lines(out) {
		_ = json.Unmarshal(line, &p)
	}
	for line := range strings.Lines(stderr) {
		if text := strings.TrimSpace(line); text != "" {
			p.stderr = text
		}
	}
	return p
}

// installTorch is what to do without torch.
const installTorch = "pip install torch, or name an interpreter that has it: --python"

// checkPython judges what an interpreter has reported. version is that of this binary.
func checkPython(python string, p probe, version string) (all []finding) {
	add := func(check string, s state, found, fix string) {
		all = append(all, finding{check, s, found, fix})
	}
	if p.Python == "" {
		why := "it printed nothing"
		if p.failure != nil {
			why = p.failure.Error()
		}
		add("python", problem, fmt.Sprintf("%s cannot be run: %s", python, cmp.Or(p.stderr, why)), "name an interpreter: --python PATH; regroup torchrun takes it from PYTHON_EXEC")
		return all
	}
	all = append(all, fine("python", "%s, %s", p.Python, p.Executable))
	all = append(all, checkPackage(p, version))
	if p.TorchError != "" {
		add("torch", problem, "cannot be imported: "+p.TorchError, installTorch)
		return all
	}
	if p.Torch != "" {
		switch found := fmt.Sprintf("%s, imported in %.1fs", p.Torch, p.Seconds); {
		case p.Seconds > 10:
			add("torch", note, found, "the import delays each restart: keep the environment on a local disk, unset PYTHONDONTWRITEBYTECODE, or start spares (regroup torchrun --spares N)")
		default:
			all = append(all, fine("torch", "%s", found))
		}
		all = append(all, checkFeatures(p)...)
	}
	if p.Stage != "end" {
		why := "ended while it tried " + p.Stage
		if errors.Is(p.failure, context.DeadlineExceeded) {
			why = fmt.Sprintf("has not ended within %s, it was trying %s", probeLimit, p.Stage)
		}
		if p.stderr != "" {
			why += ": " + p.stderr
		}
		add("python", problem, python+" "+why, "run it by hand: "+python+" -X faulthandler -c 'import torch'")
	}
	return all
}

// checkFeatures judges what torch can do.
func checkFeatures(p probe) (all []finding) {
	add := func(check string, s state, found, fix string) {
		all = append(all, finding{check, s, found, fix})
	}
	began := func(reported bool, failed string) bool { return reported || failed != "" }
	switch {
	case p.FeaturesError != "":
		add("torch.distributed", problem, p.FeaturesError, "this torch is damaged: install it again")
		return all
	case p.Stage == "torch" || p.Stage == "features":
		return all
	case !p.Distributed:
		add("torch.distributed", problem, "this torch is built without it", "install a build of torch that has it (USE_DISTRIBUTED=1)")
		return all
	}
	var has, lacks []string
	for _, f := range []struct {
		name string
		has  bool
	}{{"gloo", p.Gloo}, {"nccl", p.NCCL}, {"mpi", p.MPI}, {"reconfigure", p.Reconfigure}} {
		if f.has {
			has = append(has, f.name)
		} else {
			lacks = append(lacks, f.name)
		}
	}
	all = append(all, fine("torch.distributed", "has %s; not %s", cmp.Or(strings.Join(has, ", "), "no backend"), cmp.Or(strings.Join(lacks, ", "), "missing anything")))
	all = append(all, checkCUDA(p)...)
	if began(p.Store > 0, p.StoreError) {
		if p.StoreError != "" {
			add("tcpstore", problem, "a store on 127.0.0.1 does not work: "+p.StoreError, "the loopback interface or a port on it is blocked: ip link set lo up; look for a firewall")
		} else {
			kind := "without libuv"
			if p.Libuv {
				kind = "with libuv"
			}
			all = append(all, fine("tcpstore", "set and get on 127.0.0.1 in %.0f ms, %s", p.Store*1000, kind))
		}
	}
	if p.Gloo && began(p.Group, p.GroupError) {
		if p.GroupError != "" {
			add("gloo", problem, "a group of one rank does not work: "+p.GroupError, "name the interface of this machine: export GLOO_SOCKET_IFNAME=eth0, or add the host name to /etc/hosts")
		} else {
			all = append(all, fine("gloo", "a group of one rank works on the default interface"))
		}
	}
	return all
}

// checkCUDA judges whether torch and the driver go together.
func checkCUDA(p probe) []finding {
	warning := strings.TrimSpace(p.CUDAWarning + " " + p.CUDAError)
	const driver = "update the driver, or install the build of torch for the CUDA version of this driver (nvidia-smi shows it)"
	switch {
	case p.CUDABuild == "":
		return []finding{fine("cuda", "torch is built without it")}
	case strings.Contains(warning, "driver") && strings.Contains(warning, "too old"):
		return []finding{{"cuda", problem, "torch is built for CUDA " + p.CUDABuild + ": " + warning, driver}}
	case !p.CUDA && warning != "":
		return []finding{{"cuda", note, "torch is built for CUDA " + p.CUDABuild + ", and sees no GPU: " + warning, "if this machine should have a GPU: " + driver}}
	case p.Stage == "cuda":
		return nil
	}
	return []finding{fine("cuda", "torch is built for CUDA %s and sees %d GPUs", p.CUDABuild, p.Devices)}
}

// checkPackage judges the Python package regroup beside this binary.
func checkPackage(p probe, version string) finding {
	const install = "pip install regroup-elastic, or add its folder to PYTHONPATH; programs that only use torch.distributed do not need it"
	switch own := release(version); {
	case p.Regroup == "" && strings.HasPrefix(p.PackageError, "ModuleNotFoundError: No module named 'regroup'"):
		return finding{"regroup package", note, "it is not installed for this interpreter", install}
	case p.Regroup == "":
		return finding{"regroup package", problem, "it cannot be imported: " + p.PackageError, "install it again: pip install --force-reinstall regroup-elastic"}
	case own != "" && own != p.Regroup:
		return finding{"regroup package", problem, "it is " + p.Regroup + ", and this binary " + version, "install the same version of both: pip install regroup-elastic==" + own}
	case own == "":
		return fine("regroup package", "%s (this binary is a build without a version: %s)", p.Regroup, version)
	}
	return fine("regroup package", "%s, as this binary", p.Regroup)
}

// release is the version of a release, without what is added to builds after it; empty = none.
func release(version string) string {
	number, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	if parts := strings.Split(number, "."); len(parts) != 3 {
		return ""
	}
	return number
}
