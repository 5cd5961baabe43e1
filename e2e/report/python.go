package report

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Python runs the programs of python/bench.
type Python struct {
	Interpreter string
	Packages    string   // folder with the package regroup and its library (make libregroup)
	Binary      string   // that runs the jobs (make build)
	More        []string // folders with further packages
}

// Flags adds flags for the fields; torch is what the interpreter must have.
func (p *Python) Flags(fs *flag.FlagSet, torch string) {
	fs.StringVar(&p.Interpreter, "python", "python3", "with "+torch)
	fs.StringVar(&p.Packages, "packages", "python", "folder with the package regroup and its library (make libregroup)")
	fs.StringVar(&p.Binary, "binary", "bin/regroup", "that runs the jobs (make build)")
}

// Torch returns the version of PyTorch.
func (p *Python) Torch(ctx context.Context) (string, error) {
	text, err := p.Run(ctx, "-c", "import torch; print(torch.__version__)")
	return strings.TrimSpace(string(text)), err
}

// Measure runs a program of python/bench, which prints one JSON object.
func (p *Python) Measure(ctx context.Context, result any, program string, args ...string) error {
	text, err := p.Run(ctx, append([]string{filepath.Join("bench", program), "--json"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// Run runs the interpreter in the folder of the package; returns its standard output, which it also
// shows on standard error.
func (p *Python) Run(ctx context.Context, args ...string) ([]byte, error) {
	absolute := map[string]string{"": ""}
	for _, path := range append([]string{p.Interpreter, p.Packages, p.Binary}, p.More...) {
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		absolute[path] = full
	}
	interpreter := p.Interpreter
	if strings.Contains(interpreter, "/") { // not of PATH
		interpreter = absolute[interpreter]
	}
	path := absolute[p.Packages]
	for _, more := range p.More {
		path += string(filepath.ListSeparator) + absolute[more]
	}
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"-W", "ignore"}, args...)...)
	cmd.Dir, cmd.Env = p.Packages, append(os.Environ(), "PYTHONPATH="+path, "REGROUP_BINARY="+absolute[p.Binary])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", strings.Join(args, " "), bytes.TrimSpace(text))
	return text, nil
}
