package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/internal/version"
)

const (
	module  = "github.com/regroup-io/regroup"
	project = "https://" + module
	license = "Apache-2.0"
)

// A file is an artefact in dist.
type file struct {
	name string
	size int64
	sum  string // SHA-256, in hexadecimal
}

// assemble empties dist and writes the release into it, from what `make release` has built.
func assemble(ctx context.Context, root, dist string, c commit, s signer) error {
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	name := func(format string) string {
		return filepath.Join(dist, strings.ReplaceAll(format, "VERSION", version.Number))
	}
	var binaries []string
	for _, arch := range []string{"amd64", "arm64"} {
		for _, program := range []string{"regroup", "libregroup.so", "mnist", "counter"} {
			binaries = append(binaries, "bin/linux-"+arch+"/"+program)
		}
		if err := download(ctx, root, name("regroup-VERSION-linux-"+arch+".tar.gz"), arch, c); err != nil {
			return err
		}
	}
	for _, image := range []string{"regroup", "agent"} {
		var built []string
		for _, arch := range []string{"amd64", "arm64"} {
			built = append(built, filepath.Join(root, "bin/images", image+"-"+arch+".tar"))
		}
		called := map[string]string{"regroup": "regroup", "agent": "regroup-agent"}[image]
		if err := images(name(called+"-image-VERSION.oci.tar"), version.Number, c.Time, built); err != nil {
			return err
		}
	}
	if err := chart(ctx, root, name("regroup-VERSION.tgz"), name("regroup-chart-VERSION.oci.tar"), c); err != nil {
		return err
	}
	if err := packages(root, dist); err != nil {
		return err
	}
	if err := linuxPackages(ctx, root, dist, c); err != nil {
		return err
	}
	parts, err := billOf(root, binaries, c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name("regroup-VERSION.cdx.json"), parts, 0o644); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	said, err := notes(string(text), version.Number)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name("regroup-VERSION.notes.md"), []byte(said), 0o644); err != nil {
		return err
	}
	files, err := listed(dist)
	if err != nil {
		return err
	}
	tools, err := toolsOf(ctx, root)
	if err != nil {
		return err
	}
	statement, err := made(c, files, tools)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name("regroup-VERSION.intoto.json"), statement, 0o644); err != nil {
		return err
	}
	return finish(ctx, dist, s)
}

// download writes the archive with the binary, for people who use neither pip nor containers, and
// with the worker of `regroup demo`, which is looked for beside it.
func download(ctx context.Context, root, to, arch string, c commit) error {
	binary := filepath.Join(root, "bin/linux-"+arch, "regroup")
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	if !bytes.Contains(content, []byte(c.Hash)) {
		return fmt.Errorf("%s was not built of commit %s: make release", binary, c.Hash)
	}
	if arch == runtime.GOARCH {
		said, err := output(ctx, ".", binary, "version", "-o", "json")
		if err != nil {
			return err
		}
		var v struct{ Version, Commit string }
		if err := json.Unmarshal([]byte(said), &v); err != nil {
			return fmt.Errorf("%s: %w", binary, err)
		}
		if v.Version != version.Number || v.Commit != c.Hash {
			return fmt.Errorf("%s says %s, want version %s of commit %s: make release", binary, said, version.Number, c.Hash)
		}
	}
	top := strings.TrimSuffix(filepath.Base(to), ".tar.gz") + "/"
	entries := []entry{{top + "regroup", 0o755, content}}
	for file, mode := range map[string]int64{"bin/linux-" + arch + "/mnist": 0o755, "LICENSE": 0o644, "README.md": 0o644} {
		e, err := archived(top+filepath.Base(file), mode, filepath.Join(root, file))
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	archive, err := tarball(entries, c.Time)
	if err != nil {
		return err
	}
	if archive, err = compressed(archive); err != nil {
		return err
	}
	return os.WriteFile(to, archive, 0o644)
}

// packages copies the wheels and the source distribution.
func packages(root, dist string) error {
	built, err := filepath.Glob(filepath.Join(root, "python/dist/release/regroup_elastic-*"))
	if err != nil {
		return err
	}
	if len(built) != 3 {
		return fmt.Errorf("python/dist/release has %q, want two wheels and a source distribution: make release", built)
	}
	for _, file := range built {
		base := filepath.Base(file)
		if !strings.HasPrefix(base, "regroup_elastic-"+version.Number+"-") && base != "regroup_elastic-"+version.Number+".tar.gz" {
			return fmt.Errorf("%s is not of version %s", file, version.Number)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dist, base), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// toolsOf returns the versions of what the bytes of a release depend on, besides the sources.
func toolsOf(ctx context.Context, root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return nil, err
	}
	_, zig, _ := strings.Cut(string(text), "\nZIG ")
	zig, _, _ = strings.Cut(strings.TrimLeft(zig, " ?="), "\n")
	tools := map[string]string{"go": runtime.Version(), "ziglang": zig}
	for name, args := range map[string][]string{
		"buildah":   {"buildah", "--version"},
		"hatchling": {"/usr/bin/python3", "-c", "from importlib.metadata import version; print(version('hatchling'))"},
	} {
		if tools[name], err = output(ctx, root, args[0], args[1:]...); err != nil {
			return nil, err
		}
	}
	return tools, nil
}

// listed returns the files of dist, by name.
func listed(dist string) ([]file, error) {
	entries, err := os.ReadDir(dist)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dist, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{e.Name(), int64(len(content)), sum(content)})
	}
	return files, nil
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
