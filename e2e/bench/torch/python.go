package torch

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/regroup-io/regroup/e2e/cluster"
)

// python runs the programs of python/bench.
type python struct {
	interpreter string
	packages    string // folder with the package regroup and its library
	binary      string // folder of the binary that runs the jobs
	torchft     string // folder with a further package
}

func (p *python) flags(f *flag.FlagSet) {
	f.StringVar(&p.interpreter, "python", "python3", "with torch 2.14 or later")
	f.StringVar(&p.packages, "packages", "python", "folder with the package regroup and its library (make libregroup)")
}

// measure runs a program of python/bench, which prints one JSON object.
func (p *python) measure(ctx context.Context, result any, program string, args ...string) error {
	text, err := p.run(ctx, append([]string{filepath.Join("bench", program), "--json"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(text), result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// run runs the interpreter in the folder of the package; returns its standard output, which it also
// shows on standard error.
func (p *python) run(ctx context.Context, args ...string) (string, error) {
	var absolute [3]string
	for i, path := range []string{p.interpreter, p.packages, p.torchft} {
		var err error
		if absolute[i] = path; strings.Contains(path, "/") || i > 0 && path != "" { // otherwise of PATH, or none
			if absolute[i], err = filepath.Abs(path); err != nil {
				return "", err
			}
		}
	}
	cmd := exec.CommandContext(ctx, absolute[0], append([]string{"-W", "ignore"}, args...)...)
	cmd.Dir = p.packages
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Trim(absolute[1]+":"+absolute[2], ":"), "REGROUP_BINARY="+filepath.Join(p.binary, "regroup"))
	text, err := cluster.Output(cmd)
	if err == nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", strings.Join(args, " "), text)
	}
	return text, err
}
