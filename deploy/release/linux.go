package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself

	"github.com/regroup-io/regroup/internal/version"
)

// linuxPackages writes the packages for Debian's and Red Hat's package managers: the program with
// the worker of its demo, manual pages, completions, and units of systemd, of which none is
// started. Their bytes depend on what is in them and on the commit alone.
func linuxPackages(ctx context.Context, root, dist string, c commit) error {
	staged, err := os.MkdirTemp("", "regroup-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	common, err := stage(ctx, root, staged, c)
	if err != nil {
		return err
	}
	for _, arch := range []string{"amd64", "arm64"} {
		built := filepath.Join(root, "bin/linux-"+arch)
		contents := files.Contents{
			of(filepath.Join(built, "regroup"), "/usr/lib/regroup/regroup", 0o755, c.Time),
			of(filepath.Join(built, "mnist"), "/usr/lib/regroup/mnist", 0o755, c.Time), // the demo looks beside the program
			{Source: "../lib/regroup/regroup", Destination: "/usr/bin/regroup", Type: files.TypeSymlink, FileInfo: &files.ContentFileInfo{MTime: c.Time}},
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := pack(format, arch, dist, append(contents, common...), c); err != nil {
				return fmt.Errorf("package %s for %s: %w", format, arch, err)
			}
		}
	}
	return nil
}

func of(source, destination string, mode os.FileMode, at time.Time) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: at}}
}

// stage writes what is the same for all processors into a folder.
func stage(ctx context.Context, root, staged string, c commit) (contents files.Contents, err error) {
	add := func(name, destination, text string) {
		path := filepath.Join(staged, name)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		contents = append(contents, of(path, destination, 0o644, c.Time))
	}
	program := filepath.Join(root, "bin/linux-"+runtime.GOARCH, "regroup")
	pages := filepath.Join(staged, "man")
	if _, err := output(ctx, ".", "env", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", c.Time.Unix()), program, "docs", "man", pages); err != nil {
		return nil, err
	}
	all, err := filepath.Glob(filepath.Join(pages, "*.1"))
	if err != nil {
		return nil, err
	}
	for _, page := range all {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // there is such a level
		if _, err := w.Write(text); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		name := filepath.Base(page) + ".gz"
		add(name, "/usr/share/man/man1/"+name, packed.String())
	}
	for shell, path := range map[string]string{
		"bash": "/usr/share/bash-completion/completions/regroup", "zsh": "/usr/share/zsh/site-functions/_regroup", "fish": "/usr/share/fish/vendor_completions.d/regroup.fish",
	} {
		script, err := output(ctx, ".", program, "completion", shell)
		if err != nil {
			return nil, err
		}
		add("completion."+shell, path, script+"\n")
	}
	for _, unit := range []string{"regroup-agent.service", "regroup-gateway.service", "regroup-nats.service", "regroup@.service"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy/systemd", unit))
		if err != nil {
			return nil, err
		}
		add(unit, "/usr/lib/systemd/system/"+unit, strings.ReplaceAll(string(text), "/usr/local/bin/regroup", "/usr/bin/regroup"))
	}
	for _, file := range []string{"LICENSE", "README.md", "deploy/systemd/regroup.env"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		add(filepath.Base(file), "/usr/share/doc/regroup/"+filepath.Base(file), string(text))
	}
	return contents, err
}

func pack(format, arch, dist string, contents files.Contents, c commit) error {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "regroup", Arch: arch, Platform: "linux", Version: version.Number, Release: "1", Section: "science", Priority: "optional", DisableGlobbing: true, MTime: c.Time,
		Maintainer: "The Regroup authors", Homepage: project, License: license,
		Description: "Elastic distributed training that survives anything\nOne program on NATS JetStream: broker, services, agents and command line.",
		Overridables: nfpm.Overridables{
			Contents: contents, Umask: 0o022,
			RPM: nfpm.RPM{BuildHost: "regroup", Summary: "Elastic distributed training that survives anything", Group: "Applications/Engineering"},
		},
	})
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, packager.ConventionalFileName(info)), out.Bytes(), 0o644)
}
