package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// has checks that a finding of a check has a state and a text, and that it says what to do if it is
// not ok.
func has(t *testing.T, all []finding, check string, s state, text string) {
	t.Helper()
	for _, f := range all {
		if f.Check == check && f.State == s && strings.Contains(f.Found, text) {
			if (f.Fix == "") != (s == ok) {
				t.Errorf("%s is %s, and its fix is %q", check, s, f.Fix)
			}
			return
		}
	}
	t.Errorf("no %s of %s with %q in %+v", s, check, text, all)
}

const works = `{"python": "3.11.2", "executable": "/usr/bin/python3"}
{"stage": "package"}
{"regroup": "0.1.0"}
{"stage": "torch"}
a line of an import
{"torch": "2.15.0", "seconds": 1.5}
{"stage": "features"}
{"distributed": true, "gloo": true, "nccl": true, "mpi": false, "reconfigure": true, "cuda_build": "12.8"}
{"stage": "cuda"}
{"cuda": true, "devices": 8, "cuda_warning": ""}
{"stage": "store"}
{"store": 0.002, "libuv": true}
{"stage": "group"}
{"group": true}
{"stage": "end"}
`

func TestAPythonThatWorks(t *testing.T) {
	all := checkPython("python3", readProbe([]byte(works), "", nil), "v0.1.0-5-gabcdef")
	for check, text := range map[string]string{
		"python": "3.11.2, /usr/bin/python3", "regroup package": "0.1.0, as this binary", "torch": "2.15.0, imported in 1.5s",
		"torch.distributed": "has gloo, nccl, reconfigure; not mpi", "cuda": "8 GPUs", "tcpstore": "in 2 ms, with libuv", "gloo": "works",
	} {
		has(t, all, check, ok, text)
	}
	if len(all) != 7 {
		t.Errorf("%d findings: %+v", len(all), all)
	}
}

func TestPython(t *testing.T) {
	replaced := func(old, new string) string { return strings.Replace(works, old, new, 1) }
	until := func(stage string) string {
		before, _, _ := strings.Cut(works, `{"stage": "`+stage+`"}`)
		return before + `{"stage": "` + stage + `"}` + "\n"
	}
	for name, c := range map[string]struct {
		out, stderr string
		failure     error
		check       string
		state       state
		found       string
	}{
		"no interpreter":   {"", "", errors.New("no such file"), "python", problem, "python3 cannot be run: no such file"},
		"it fails":         {"", "Fatal Python error\n\n", errors.New("exit status 1"), "python", problem, "Fatal Python error"},
		"no torch":         {until("torch") + `{"torch_error": "ModuleNotFoundError: No module named 'torch'"}` + "\n" + `{"stage": "end"}`, "", nil, "torch", problem, "No module named 'torch'"},
		"slow import":      {replaced(`"seconds": 1.5`, `"seconds": 12`), "", nil, "torch", note, "12.0s"},
		"import hangs":     {until("torch"), "", context.DeadlineExceeded, "python", problem, "it was trying torch"},
		"import crashes":   {until("torch"), "Illegal instruction", errors.New("signal"), "python", problem, "ended while it tried torch: Illegal instruction"},
		"not distributed":  {replaced(`"distributed": true`, `"distributed": false`), "", nil, "torch.distributed", problem, "without it"},
		"damaged":          {replaced(`{"distributed": true`, `{"features_error": "ImportError: x", "distributed": false`), "", nil, "torch.distributed", problem, "ImportError: x"},
		"store fails":      {replaced(`{"store": 0.002, "libuv": true}`, `{"store_error": "RuntimeError: refused"}`), "", nil, "tcpstore", problem, "refused"},
		"without libuv":    {replaced(`"libuv": true`, `"libuv": false`), "", nil, "tcpstore", ok, "without libuv"},
		"gloo fails":       {replaced(`{"group": true}`, `{"group_error": "RuntimeError: Unable to find address"}`), "", nil, "gloo", problem, "Unable to find address"},
		"old driver":       {replaced(`"cuda_warning": ""`, `"cuda_warning": "The NVIDIA driver on your system is too old (found version 11040)."`), "", nil, "cuda", problem, "too old"},
		"no driver":        {replaced(`"cuda": true, "devices": 8, "cuda_warning": ""`, `"cuda": false, "devices": 0, "cuda_warning": "Found no NVIDIA driver"`), "", nil, "cuda", note, "Found no NVIDIA driver"},
		"cpu build":        {replaced(`"cuda_build": "12.8"`, `"cuda_build": ""`), "", nil, "cuda", ok, "without it"},
		"no package":       {replaced(`{"regroup": "0.1.0"}`, `{"package_error": "ModuleNotFoundError: No module named 'regroup'"}`), "", nil, "regroup package", note, "not installed"},
		"damaged package":  {replaced(`{"regroup": "0.1.0"}`, `{"package_error": "SyntaxError: x"}`), "", nil, "regroup package", problem, "SyntaxError: x"},
		"another version":  {replaced(`{"regroup": "0.1.0"}`, `{"regroup": "0.2.0"}`), "", nil, "regroup package", problem, "0.2.0, and this binary v0.1.0"},
		"several at once ": {replaced(`{"group": true}`, `{"group_error": "x"}`), "", nil, "torch", ok, "2.15.0"},
	} {
		t.Run(name, func(t *testing.T) {
			has(t, checkPython("python3", readProbe([]byte(c.out), c.stderr, c.failure), "v0.1.0"), c.check, c.state, c.found)
		})
	}
}

func TestRelease(t *testing.T) {
	for version, want := range map[string]string{"v0.1.0": "0.1.0", "0.1.0-3-gabc-dirty": "0.1.0", "dev": "", "abcdef0": "", "": ""} {
		if got := release(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
