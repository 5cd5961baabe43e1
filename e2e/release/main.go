// Command release tries a release: it makes one twice, in clones of this commit in folders of their
// own, and compares every file; it checks what a tree is refused for, that the SBOM names every
// module of every program, that checksums and signature are good, that the packages for Debian and
// Red Hat have the program, and that wheel and source distribution install with each Python of this
// machine and say the version.
//
//	go run ./e2e/release
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/e2e/program"
	"github.com/regroup-io/regroup/internal/version"
)

// limit bounds the whole run: everything is compiled twice.
const limit = 90 * time.Minute

func main() {
	keep := flag.String("keep", "", "a folder in which the release of the first build is left")
	program.Main("release", func(ctx context.Context) error { return run(ctx, *keep) })
}

func run(ctx context.Context, keep string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "regroup-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := output(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	r := &rig{root: root, dir: dir, first: filepath.Join(dir, "first"), tagged: filepath.Join(dir, "tagged")}
	for _, step := range []func(context.Context) error{r.tag, r.refusals, r.build, r.sums, r.bill, r.images, r.chart, r.linux, r.pythons, r.again} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if keep != "" {
		return os.CopyFS(keep, os.DirFS(r.dist(r.first)))
	}
	return nil
}

// A rig has the clones of which releases are made.
type rig struct {
	root, dir     string
	tagged, first string   // the clone that is tagged, and the one whose release is examined
	signed        []string // arguments of make that have it signed; none where there is no cosign
}

func (r *rig) dist(clone string) string { return filepath.Join(clone, "dist") }

// file is the path of an artefact of the first build.
func (r *rig) file(format string) string {
	return filepath.Join(r.dist(r.first), strings.ReplaceAll(format, "VERSION", version.Number))
}

// tag makes a clone whose head is a commit that can be released, and tags it.
func (r *rig) tag(ctx context.Context) error {
	if changed, err := output(ctx, r.root, nil, "git", "status", "--porcelain"); err != nil {
		return err
	} else if changed != "" {
		fmt.Println("what is not committed is not tried")
	}
	for _, command := range [][]string{
		{"git", "clone", "-q", r.root, r.tagged},
		{"git", "-C", r.tagged, "checkout", "-q", "-B", "release"},
		{"make", "-s", "-C", r.tagged, "version", "VERSION=" + version.Number, "DATE=2026-12-31"},
		{"git", "-C", r.tagged, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-a", "--allow-empty", "-m", "a release"},
	} {
		if _, err := output(ctx, r.root, nil, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// refusals: what must not be released is not, with a sentence that says what to do.
func (r *rig) refusals(ctx context.Context) error {
	git := func(args ...string) error {
		_, err := output(ctx, r.tagged, nil, "git", args...)
		return err
	}
	refused := func(want string) error {
		said, err := output(ctx, r.tagged, nil, "make", "release")
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("make release says %s, %w: want a refusal with %q", said, err, want)
		}
		fmt.Printf("refused: %s\n", want)
		return nil
	}
	stray := filepath.Join(r.tagged, "stray")
	return errors.Join(
		refused("this commit has no tag"),
		git("tag", "v99.0.0"), refused("the tag of this commit is v99.0.0, and the version in the tree is "+version.Number), git("tag", "-d", "v99.0.0"),
		git("tag", "v"+version.Number),
		os.WriteFile(stray, nil, 0o600), refused("the tree differs from its commit"), os.Remove(stray),
	)
}

// build makes the release that is examined.
func (r *rig) build(ctx context.Context) error {
	if err := r.key(ctx); err != nil {
		return err
	}
	return r.make(ctx, r.first, "022", nil)
}

// again makes it once more, without the compiler's cache, in another folder and with other
// permissions of new files, and compares.
func (r *rig) again(ctx context.Context) error {
	second := filepath.Join(r.dir, "and", "another", "folder")
	if err := r.make(ctx, second, "077", []string{"GOCACHE=" + filepath.Join(r.dir, "cache")}); err != nil {
		return err
	}
	return compare(r.dist(r.first), r.dist(second))
}

// make runs make release in a clone of its own.
func (r *rig) make(ctx context.Context, clone, umask string, env []string) error {
	if _, err := output(ctx, r.dir, nil, "git", "clone", "-q", r.tagged, clone); err != nil {
		return err
	}
	began := time.Now()
	arguments := append([]string{"-c", `umask "$0" && exec make -s "$@"`, umask, "release", "TOOLS=" + filepath.Join(r.root, ".tools")}, r.signed...)
	said, err := output(ctx, clone, env, "sh", arguments...)
	if err != nil {
		return err
	}
	fmt.Printf("%s\nbuilt in %.0f s\n", said, time.Since(began).Seconds())
	return nil
}

// random are the files that differ each time: a signature of the curve that cosign uses has a
// random number in it.
var random = map[string]bool{"SHA256SUMS.sig": true}

func compare(first, second string) error {
	a, err := os.ReadDir(first)
	if err != nil {
		return err
	}
	b, err := os.ReadDir(second)
	if err != nil {
		return err
	}
	if len(a) != len(b) {
		return fmt.Errorf("the builds have %d and %d files", len(a), len(b))
	}
	var errs []error
	for _, e := range a {
		one, err := os.ReadFile(filepath.Join(first, e.Name()))
		if err != nil {
			return err
		}
		two, err := os.ReadFile(filepath.Join(second, e.Name()))
		switch {
		case err != nil:
			errs = append(errs, err)
		case random[e.Name()]:
			fmt.Printf("differs, as it must: %s\n", e.Name())
		case !bytes.Equal(one, two):
			errs = append(errs, fmt.Errorf("%s differs between two builds of one commit", e.Name()))
		default:
			fmt.Printf("the same twice: %s\n", e.Name())
		}
	}
	return errors.Join(errs...)
}

// output runs a program and returns what it prints on its standard output. Its error has both.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(environment(), env...), &out, &errs
	// What make has started ends with it, when this program is interrupted.
	cmd.SysProcAttr, cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, 10*time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(out.String()+errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// environment is that of this process without what the make that started it tells its children.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MAKE") && !strings.HasPrefix(e, "MFLAGS") {
			env = append(env, e)
		}
	}
	return env
}
