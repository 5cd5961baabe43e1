package spec

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// GPU is what each worker of a job needs of the GPU that it has for itself. Empty = any GPU will
// do.
type GPU struct {
	// Each worker has a GPU of its own whose model has these words, in any case and order: `H100`,
	// `A100 80GB`. They are whole words, so `L4` is not an L40S, and instances of a divided GPU
	// (MIG) must be asked for: `A100 MIG`. `gpu: {}` is any GPU or instance. The job gets only
	// slots that have such a GPU, see [gpu.md](gpu.md#jobs-that-ask-for-gpus). Not with
	// `rendezvous`.
	Model string `json:"model,omitempty" pattern:"^[A-Za-z0-9][A-Za-z0-9 ._+/-]{0,99}$" error:"is no model: write words of its name as regroup node ls -o wide shows it, such as H100 or A100 80GB; each worker has one GPU, and more workers have more"`
	// The GPU has at least so much memory. `80GB` and `80GiB` both mean what a card has that is
	// sold with 80 GB: 80 000 000 000 bytes, where nvidia-smi shows 81559MiB. `81559MiB` means just
	// that.
	Memory GPUMemory `json:"memory,omitempty" pattern:"^[1-9][0-9]{0,6}(GB|GiB|MiB)$" error:"is no memory of a GPU: write 80GB, as it is sold, or 81559MiB, as nvidia-smi shows it"`
}

// GPUMemory is an amount of memory as text: 80GB, 80GiB or 81559MiB.
type GPUMemory string

// gpuUnits are the units of GPUMemory in bytes. GiB is that of those who sell GPUs: a card of 24 GB
// has 24576 MiB, or 23034 with error correction, and a job that asks for 24GiB means both.
var gpuUnits = map[string]uint64{"GB": 1e9, "GiB": 1e9, "MiB": 1 << 20}

// MiB returns the amount as nvidia-smi counts it, rounded up; 0 = any.
func (m GPUMemory) MiB() int {
	text := string(m)
	at := strings.IndexFunc(text, unicode.IsLetter)
	if at < 0 {
		return 0
	}
	n, _ := strconv.ParseUint(text[:at], 10, 32) // its pattern was checked
	return int((n*gpuUnits[text[at:]] + 1<<20 - 1) >> 20)
}

// Matches reports whether a GPU will do. An empty model and no memory are unknown ones, which are
// what no request names.
func (g GPU) Matches(model string, memoryMiB int) bool {
	has, wanted := words(model), words(g.Model)
	for _, w := range wanted {
		if !slices.Contains(has, w) {
			return false
		}
	}
	const instance = "mig"
	if len(wanted) > 0 && slices.Contains(has, instance) && !slices.Contains(wanted, instance) {
		return false
	}
	return memoryMiB >= g.Memory.MiB()
}

// words returns the words of a model's name: NVIDIA A100-SXM4-40GB has four. The kinds of instances
// are words too: 3g.20gb.
func words(model string) []string {
	return strings.FieldsFunc(strings.ToLower(model), func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '.' && c != '+'
	})
}

// String describes the GPU: a GPU of model H100 with at least 80GB.
func (g GPU) String() string {
	text := "a GPU"
	if g.Model != "" {
		text += " of model " + g.Model
	}
	switch {
	case g.Memory != "" && g.Model != "":
		text += " with at least " + string(g.Memory)
	case g.Memory != "":
		text += " of at least " + string(g.Memory)
	}
	return text
}

// With describes the GPU that each worker or slot must have: " with a GPU of model H100"; nil =
// none.
func (g *GPU) With() string {
	if g == nil {
		return ""
	}
	return " with " + g.String()
}

// checkGPU checks what tags do not express.
func (s Job) checkGPU(add func(path, format string, args ...any)) {
	if s.GPU == nil {
		return
	}
	if s.Rendezvous != nil {
		add("gpu", "is given, but the nodes of a rendezvous come by themselves, and none is chosen: start agents where such GPUs are, and leave it out")
	}
	model := s.GPU.Model
	switch _, err := strconv.Atoi(model); {
	case strings.EqualFold(model, "any"):
		add("gpu.model", "is %q: leave the model out, an empty one is any", model)
	case strings.EqualFold(model, "none"):
		add("gpu.model", "is %q: leave gpu out, a job without it asks for none", model)
	case err == nil && len(model) < 3: // the shortest number of a model has three digits
		add("gpu.model", "is %q: each worker has one GPU, and more workers have more; write a model, or leave it out", model)
	}
	const visible = "CUDA_VISIBLE_DEVICES"
	for path, given := range map[string]map[string]string{"env": s.Env, "secrets": s.Secrets} {
		if _, ok := given[visible]; ok {
			add(JoinPath(path, visible), "is given, and gpu too, which has the agent set it to the GPUs of the job's slots: leave one of them out")
		}
	}
}
