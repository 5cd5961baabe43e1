package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/version"
)

// program stands in for the binary: it writes a manual page and completions.
const program = `#!/bin/sh
case "$1" in
docs) mkdir -p "$3" && echo ".TH regroup at $SOURCE_DATE_EPOCH" > "$3/regroup.1" ;;
completion) echo "# completion of $2" ;;
esac
`

func TestLinuxPackages(t *testing.T) {
	root := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		for name, text := range map[string]string{"regroup": program, "mnist": "#!/bin/sh\n"} {
			path := filepath.Join(root, "bin/linux-"+arch, name)
			write(t, path, text)
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, unit := range []string{"regroup-agent.service", "regroup-gateway.service", "regroup-nats.service", "regroup@.service", "regroup.env"} {
		write(t, filepath.Join(root, "deploy/systemd", unit), "ExecStart=/usr/local/bin/regroup agent\n")
	}
	write(t, filepath.Join(root, "LICENSE"), "a licence")
	write(t, filepath.Join(root, "README.md"), "# Regroup")
	made := func() map[string][]byte {
		dist := t.TempDir()
		if err := linuxPackages(t.Context(), root, dist, commit{Hash: "abc", Time: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)}); err != nil {
			t.Fatal(err)
		}
		all := map[string][]byte{}
		entries, err := os.ReadDir(dist)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if all[e.Name()], err = os.ReadFile(filepath.Join(dist, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	first, second := made(), made()
	for name, begin := range map[string]string{
		"regroup_VERSION-1_amd64.deb": "!<arch>\ndebian-binary", "regroup_VERSION-1_arm64.deb": "!<arch>\ndebian-binary",
		"regroup-VERSION-1.x86_64.rpm": "\xed\xab\xee\xdb", "regroup-VERSION-1.aarch64.rpm": "\xed\xab\xee\xdb",
	} {
		name = strings.ReplaceAll(name, "VERSION", version.Number)
		if !bytes.HasPrefix(first[name], []byte(begin)) {
			t.Errorf("%s is not there, or is no such package: %.20q", name, first[name])
		}
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s is not the same twice", name)
		}
	}
	if len(first) != 4 {
		t.Errorf("%d packages", len(first))
	}
}
