package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/internal/version"
)

// linux: the tools of Debian and Red Hat read the packages, which have the same files, and the
// program in them says the version.
func (r *rig) linux(ctx context.Context) error {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	var deb, rpm []string
	for _, goarch := range []string{"amd64", "arm64"} {
		file := r.file("regroup_VERSION-1_" + goarch + ".deb")
		said, err := output(ctx, r.dir, nil, "dpkg-deb", "--field", file, "Package", "Version", "Architecture")
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("Package: regroup\nVersion: %s-1\nArchitecture: %s", version.Number, goarch); said != want {
			return fmt.Errorf("%s says %q, want %q", file, said, want)
		}
		into := filepath.Join(r.dir, "deb-"+goarch)
		if _, err := output(ctx, r.dir, nil, "dpkg-deb", "--extract", file, into); err != nil {
			return err
		}
		found, err := output(ctx, into, nil, "find", ".", "!", "-type", "d", "-printf", "/%P\\n")
		if err != nil {
			return err
		}
		deb = strings.Fields(found)
		if goarch == runtime.GOARCH {
			said, err := output(ctx, r.dir, nil, filepath.Join(into, "usr/bin/regroup"), "--version")
			if err != nil {
				return err
			}
			if !strings.Contains(said, version.Number) {
				return fmt.Errorf("the program of %s says %q", file, said)
			}
			fmt.Printf("package: %s has %d files, and its program says %s\n", filepath.Base(file), len(deb), said)
		}
		file = r.file("regroup-VERSION-1." + arch[goarch] + ".rpm")
		if _, err := output(ctx, r.dir, nil, "rpm", "--checksig", "--nosignature", file); err != nil {
			return err
		}
		listed, err := output(ctx, r.dir, nil, "rpm", "--query", "--package", "--nosignature", "--list", file)
		if err != nil {
			return err
		}
		rpm = strings.Fields(listed)
		slices.Sort(deb)
		slices.Sort(rpm)
		if !slices.Equal(deb, rpm) {
			return fmt.Errorf("the packages have other files:\n%s\n%s", deb, rpm)
		}
		fmt.Printf("package: %s is whole, and has the same files\n", filepath.Base(file))
	}
	return nil
}
