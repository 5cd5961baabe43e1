package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// leftBy are variables that a launcher gives to workers.
var leftBy = []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}

// checkEnvironment judges the variables of this shell, written NAME=value.
func checkEnvironment(environ []string) []finding {
	var left, pet, petNames []string
	ranks, bytecode := false, false
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case value == "":
		case slices.Contains(leftBy, name) || strings.HasPrefix(name, "TORCHELASTIC_") && name != "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE":
			left = append(left, name)
			ranks = ranks || name == "RANK" || name == "WORLD_SIZE"
		case strings.HasPrefix(name, "PET_"):
			pet, petNames = append(pet, e), append(petNames, name)
		case name == "PYTHONDONTWRITEBYTECODE":
			bytecode = true
		}
	}
	slices.Sort(left)
	slices.Sort(pet)
	slices.Sort(petNames)
	var all []finding
	if len(left) > 0 {
		f := finding{"environment", note, "set, as by a launcher: " + strings.Join(left, ", "), "unset " + strings.Join(left, " ")}
		if ranks {
			f.State, f.Found = problem, f.Found+". A script that is run without one waits for other ranks, or takes the wrong rank"
		}
		all = append(all, f)
	}
	if len(pet) > 0 {
		all = append(all, finding{"environment", note, strings.Join(pet, ", ") + ": torchrun and regroup torchrun take flags from it that are not given", "unless you mean it: unset " + strings.Join(petNames, " ")})
	}
	if bytecode {
		all = append(all, finding{"environment", note, "PYTHONDONTWRITEBYTECODE is set: each start of Python compiles all modules that have no .pyc file", "unset PYTHONDONTWRITEBYTECODE, or compile once: python -m compileall"})
	}
	if all == nil {
		all = append(all, fine("environment", "no variable of another launcher is set"))
	}
	return all
}

// checkGPUs judges the devices of this machine. devices are the files /dev/nvidiaN; driver is the
// content of /proc/driver/nvidia/version; visible is CUDA_VISIBLE_DEVICES, if that is set.
func checkGPUs(devices int, driver, visible string, set bool) finding {
	const check = "gpus"
	line, _, _ := strings.Cut(driver, "\n")
	if _, version, found := strings.Cut(line, "Kernel Module"); found {
		if f := strings.Fields(version); len(f) > 0 {
			line = "driver " + f[0]
			if len(f) > 2 && f[0] == "for" { // for x86_64  550.54
				line = "driver " + f[2]
			}
		}
	}
	switch {
	case devices == 0 && driver != "":
		return finding{check, problem, line + " is loaded, and there is no /dev/nvidia0", "containers: docker run --gpus all, with the NVIDIA container toolkit; else: nvidia-modprobe -c 0"}
	case devices == 0 && set && visible != "" && visible != "-1":
		return finding{check, problem, "CUDA_VISIBLE_DEVICES=" + visible + ", and there is no GPU", "unset CUDA_VISIBLE_DEVICES"}
	case devices == 0:
		return fine(check, "none of NVIDIA")
	}
	found := fmt.Sprintf("%d, %s", devices, line)
	if !set {
		return fine(check, "%s", found)
	}
	if first, _, _ := strings.Cut(visible, ","); first == "" || strings.HasPrefix(first, "-") {
		return finding{check, note, fmt.Sprintf("%s; CUDA_VISIBLE_DEVICES=%q hides them all", found, visible), "to use them: unset CUDA_VISIBLE_DEVICES"}
	}
	for item := range strings.SplitSeq(visible, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(item)); err == nil && n >= devices {
			return finding{check, problem, fmt.Sprintf("%s; CUDA_VISIBLE_DEVICES=%s names GPU %d, and hides all from there on", found, visible, n), fmt.Sprintf("name 0 to %d, or unset CUDA_VISIBLE_DEVICES", devices-1)}
		}
	}
	return fine(check, "%s; CUDA_VISIBLE_DEVICES=%s", found, visible)
}

// checkUser judges as whom an agent of this user starts workers; byDefault is the agent's default
// user.
func checkUser(euid int, byDefault string) finding {
	const check = "user of jobs"
	switch {
	case euid != 0:
		return fine(check, "user %d, as whom an agent started here runs all jobs; jobs that name another one (processes.user) are refused", euid)
	case byDefault == "":
		return finding{check, note, "root, unless a job names another user (processes.user)", "regroup agent --default-user NAME (REGROUP_AGENT_DEFAULT_USER)"}
	}
	return fine(check, "%s, unless a job names another user (processes.user); root is refused", byDefault)
}
