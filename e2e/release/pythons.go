package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/internal/version"
)

// says is a program that prints what the installed package says about itself.
const says = `
import regroup
from regroup import _library
print(regroup.__version__)
print(_library.library().rg_version().decode())
try:
    from importlib.metadata import metadata
except ImportError:
    raise SystemExit("this Python is too old")
m = metadata("regroup-elastic")
assert m["Version"] == regroup.__version__, m["Version"]
assert m["Author"] and m["License"] == "Apache-2.0", m
for label in ("Homepage", "Documentation", "Source", "Issues", "Changelog"):
    assert any(url.startswith(label + ", https://") for url in m.get_all("Project-URL")), label
assert "torch" in m.get_all("Provides-Extra")
`

// oldest is the oldest minor version of Python 3 that the package supports.
const oldest = 8

// pythons installs the wheel and the source distribution into fresh environments of each Python;
// one that is too old must refuse both.
func (r *rig) pythons(ctx context.Context) error {
	found, err := interpreters(ctx)
	if err != nil {
		return err
	}
	wheels, err := filepath.Glob(r.file("*" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("%q: %w, want one wheel for this machine", wheels, err)
	}
	source := r.file("regroup_elastic-VERSION.tar.gz")
	supported := 0
	for _, p := range found {
		if p.minor < oldest {
			if _, err := output(ctx, r.dir, nil, p.path, "-m", "pip", "download", "--no-deps", "--no-index", "-d", filepath.Join(r.dir, "no"), wheels[0]); err == nil {
				return fmt.Errorf("pip of %s takes the wheel", p)
			}
			fmt.Printf("%s: refuses the wheel\n", p)
			continue
		}
		supported++
		for _, what := range []string{wheels[0], source} {
			if err := r.install(ctx, p, what); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	if supported == 0 {
		return errors.New("this machine has no Python that the package supports")
	}
	newest := found[len(found)-1]
	return errors.Join(r.demo(ctx, newest, wheels[0]), r.withoutGo(ctx, newest, source))
}

// demo runs the demo of a wheel, with nothing of the tree beside it.
func (r *rig) demo(ctx context.Context, p interpreter, wheel string) (err error) {
	home := filepath.Join(r.dir, "venv")
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	if _, err := output(ctx, r.dir, nil, p.path, "-m", "venv", home); err != nil {
		return err
	}
	if _, err := output(ctx, r.dir, nil, filepath.Join(home, "bin/pip"), "install", "-q", "--no-index", wheel); err != nil {
		return err
	}
	if _, err := output(ctx, home, []string{"HOME=" + home, "XDG_STATE_HOME="}, filepath.Join(home, "bin/regroup"), "demo"); err != nil {
		return err
	}
	fmt.Println("the demo runs from the wheel")
	return nil
}

func (r *rig) install(ctx context.Context, p interpreter, what string) (err error) {
	home := filepath.Join(r.dir, "venv")
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	if _, err := output(ctx, r.dir, nil, p.path, "-m", "venv", home); err != nil {
		return err
	}
	bin := filepath.Join(home, "bin")
	if _, err := output(ctx, r.dir, nil, filepath.Join(bin, "pip"), "install", "-q", "--no-deps", what); err != nil {
		return err
	}
	said, err := output(ctx, r.dir, nil, filepath.Join(bin, "python"), "-I", "-c", says)
	if err != nil {
		return err
	}
	of, library, _ := strings.Cut(said, "\n")
	binary, err := output(ctx, r.dir, nil, filepath.Join(bin, "regroup"), "--version")
	if err != nil {
		return err
	}
	if start := "regroup " + version.Number + " (commit "; of != version.Number || !strings.HasPrefix(library, start) || !strings.HasPrefix(binary, library) {
		return fmt.Errorf("after pip install %s the package says %q, its library %q and its binary %q", filepath.Base(what), of, library, binary)
	}
	ran, err := output(ctx, r.dir, []string{"HOME=" + home, "XDG_STATE_HOME="}, filepath.Join(bin, "regroup"), "run", "--workers", "2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
	if err == nil && (!strings.Contains(ran, "rank 0 of 2") || !strings.Contains(ran, "rank 1 of 2")) {
		err = errors.New(ran)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", p, filepath.Base(what))
	return nil
}

// withoutGo: a source distribution says what it misses.
func (r *rig) withoutGo(ctx context.Context, p interpreter, source string) (err error) {
	home := filepath.Join(r.dir, "venv")
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	if _, err := output(ctx, r.dir, nil, p.path, "-m", "venv", home); err != nil {
		return err
	}
	bin := filepath.Join(home, "bin")
	_, err = output(ctx, r.dir, []string{"PATH=" + bin}, filepath.Join(bin, "pip"), "install", "--no-deps", source)
	if want := "must be on PATH"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "https://go.dev/doc/install") {
		return fmt.Errorf("pip install of the source without Go: %w, want %q", err, want)
	}
	fmt.Println("without Go the source distribution says that it is missing")
	return nil
}

// An interpreter is a Python of this machine.
type interpreter struct {
	path  string
	minor int // of Python 3; 0 = Python 2
}

func (p interpreter) String() string { return fmt.Sprintf("Python 3.%d", p.minor) }

// interpreters are those on PATH and those of pyenv, one of each minor version, the oldest first.
func interpreters(ctx context.Context) ([]interpreter, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	patterns := []string{filepath.Join(cmp.Or(os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv")), "versions/*/bin/python")}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		patterns = append(patterns, filepath.Join(dir, "python3"), filepath.Join(dir, "python3.[0-9]*"))
	}
	var found []interpreter
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			said, err := output(ctx, ".", nil, path, "-c", "import sys; print(sys.version_info[0], sys.version_info[1])")
			if err != nil {
				continue // python3.11-config and the like
			}
			major, text, _ := strings.Cut(said, " ")
			minor, err := strconv.Atoi(text)
			if err != nil || major != "3" || slices.ContainsFunc(found, func(p interpreter) bool { return p.minor == minor }) {
				continue
			}
			found = append(found, interpreter{path, minor})
		}
	}
	slices.SortFunc(found, func(a, b interpreter) int { return cmp.Compare(a.minor, b.minor) })
	if len(found) == 0 {
		return nil, errors.New("this machine has no Python 3")
	}
	return found, nil
}
