package jobflags

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/ident"
)

// TestNameOf: a job has the name of the script or module that it runs, whatever options its
// interpreter and launcher have.
func TestNameOf(t *testing.T) {
	for _, c := range [][2]string{
		{"python -u train.py --epochs 10", "train"},
		{"/opt/bin/My_Train.sh", "my-train"},
		{"python", "python"},
		{"python3 -u -c import,torch;print(1)", "python3"},
		{"bash -lc exec,train", "bash"},
		{"", "job"},
		{"/usr/bin/env x", "x"},

		{"python -W ignore x.py", "x"},
		{"python -Wignore x.py", "x"},
		{"python -uW ignore -X dev -X faulthandler src/x.py -W 3", "x"},
		{"python3.12 -B --check-hash-based-pycs never x.py", "x"},
		{"python -m lab.train --lr 1", "train"},
		{"python -um lab.train", "train"},
		{"python -mlab", "lab"},
		{"python -m lab.__main__", "lab"},
		{"python - a.py", "python"},
		{"python -- x.py", "x"},
		{"python -Wc x.py", "x"},
		{"env -u A -i B=1 C=2 python -W ignore x.py", "x"},
		{"env A=1", "env"},
		{"bash -euo pipefail train.sh", "train"},
		{"sh -o errexit ./train.sh", "train"},
		{"bash -euxo pipefail -c exec,train", "bash"},
		{"bash --rcfile rc train.sh", "train"},
		{"node -r ts-node/register train.js", "train"},
		{"node -e 1", "node"},
		{"go run -tags cgo ./cmd/train -steps 3", "train"},
		{"go run .", "go"},

		{"torchrun --nproc-per-node 2 --nnodes=1 train.py --lr 3", "train"},
		{"torchrun --nproc_per_node 2 -m lab.train", "train"},
		{"python -m torch.distributed.run --nproc-per-node 2 train.py", "train"},
		{"python -m torch.distributed.launch --nproc-per-node 2 --module lab.train", "train"},
		{"accelerate launch --num_processes 2 nlp/run_glue.py", "run-glue"},
		{"uv run --with torch python -W ignore x.py", "x"},
		{"uv run train", "train"},
		{"srun -n 2 numactl --cpunodebind 0 python x.py", "x"},
		{"nice -n 10 ./mnist", "mnist"},
		{"nice -n 10 mnist", "nice"},
		{"torchrun", "torchrun"},
		{".hidden", "hidden"},
	} {
		args := strings.Fields(c[0])
		if got := NameOf(args); got != c[1] {
			t.Errorf("%s is called %q, want %q", c[0], got, c[1])
		}
	}
}

// FuzzNameOf: whatever a command is, the name can be that of a job.
func FuzzNameOf(f *testing.F) {
	for _, s := range []string{"python\x00-W", "env\x00-u", "uv\x00run\x00-m", "go\x00run", "bash\x00-o", "-", ".", "/", "\x00", "python\x00-m\x00."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name := NameOf(strings.Split(text, "\x00"))
		if len(name) > maxName || ident.NodeID(name).Check() != nil {
			t.Errorf("%q is called %q", text, name)
		}
	})
}
