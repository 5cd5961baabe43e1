package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build is the binaries of one state of the source.
type build struct {
	name    string // old or new
	dir     string
	version string // that its binary reports
}

func (b build) binary(name string) string { return filepath.Join(b.dir, name) }

// builds makes the binaries of a commit and of this tree below dir.
func builds(ctx context.Context, commit, dir string) (before, after build, err error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return before, after, err
	}
	hash, err := output(ctx, root, "git", "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		return before, after, fmt.Errorf("commit %s is not in this clone: git fetch --unshallow brings it, or name another one (make e2e SUITE=upgrade FROM=COMMIT)", commit)
	}
	described, err := output(ctx, root, "git", "describe", "--tags", "--always", "--dirty")
	if err != nil {
		return before, after, err
	}
	source, packed := filepath.Join(dir, "source"), filepath.Join(dir, "source.tar")
	if err := os.Mkdir(source, 0o700); err != nil {
		return before, after, err
	}
	if _, err := output(ctx, root, "git", "archive", "--format=tar", "--output="+packed, hash); err != nil {
		return before, after, err
	}
	if _, err := output(ctx, source, "tar", "-xf", packed); err != nil {
		return before, after, err
	}
	before = build{name: "old", dir: filepath.Join(dir, "old"), version: "old-" + hash[:7]}
	after = build{name: "new", dir: filepath.Join(dir, "new"), version: "new-" + described}
	if err := before.make(ctx, source, "./cmd/regroup", "./e2e/recorder"); err != nil {
		return before, after, err
	}
	return before, after, after.make(ctx, root, "./cmd/regroup", "./e2e/recorder", "./e2e/upgrade/trainer")
}

// make builds commands of the source in root, and checks that the binary says what it was made of.
func (b build) make(ctx context.Context, root string, packages ...string) error {
	args := append([]string{"build", "-trimpath", "-ldflags", "-X main.version=" + b.version, "-o", b.dir + "/"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", b.version, err, out)
	}
	return b.check(ctx, b.binary("regroup"))
}

// check checks that the binary at a path is of this build.
func (b build) check(ctx context.Context, path string) error {
	said, err := output(ctx, ".", path, "version")
	if err == nil && !strings.Contains(said, " "+b.version+" ") {
		err = fmt.Errorf("%s reports %q, want %s", path, said, b.version)
	}
	return err
}

// output runs a command in a folder and returns what it has printed.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var errs strings.Builder
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
