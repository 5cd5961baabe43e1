package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/regroup-io/regroup/internal/version"
)

// TestBill uses the program of this test as the binary.
func TestBill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "bin/linux-amd64/regroup"), string(content))
	lock, err := os.ReadFile("../../services/gateway/dashboard/vendor.lock")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "services/gateway/dashboard/vendor.lock"), string(lock))
	c := commit{strings.Repeat("c", 40), at}
	text, err := billOf(root, []string{"bin/linux-amd64/regroup"}, c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := billOf(root, []string{"bin/linux-amd64/regroup"}, c); err != nil || !bytes.Equal(text, again) {
		t.Errorf("twice is not the same, %v", err)
	}
	var doc cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{doc.Metadata.Component.BOMRef: true}
	for _, component := range *doc.Components {
		has[component.BOMRef] = true
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil || len(info.Deps) == 0 {
		t.Fatalf("%v, %v", info, err)
	}
	for _, m := range info.Deps {
		if m.Replace == nil && !has["pkg:golang/"+m.Path+"@"+m.Version] {
			t.Errorf("%s is missing", m.Path)
		}
	}
	for _, ref := range []string{"pkg:pypi/regroup-elastic@" + version.Number, "pkg:npm/%40preact/signals@2.11.4", "file:linux-amd64/regroup"} {
		if !has[ref] {
			t.Errorf("%s is missing", ref)
		}
	}
	for _, d := range *doc.Dependencies {
		for _, ref := range append(*d.Dependencies, d.Ref) {
			if !has[ref] {
				t.Errorf("%s is referred to, and missing", ref)
			}
		}
	}
}

func TestProvenance(t *testing.T) {
	t.Setenv("RELEASE_BUILDER", "https://example.org/builder")
	t.Setenv("RELEASE_RUN", "https://example.org/run/7")
	c := commit{strings.Repeat("c", 40), at}
	files := []file{{"a.whl", 1, strings.Repeat("a", 64)}}
	text, err := made(c, files, map[string]string{"go": "go1", "ziglang": "0"})
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		PredicateType string
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
			RunDetails struct {
				Builder  struct{ ID string }
				Metadata struct{ InvocationID string }
			}
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	p := s.Predicate
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" || s.Subject[0].Digest["sha256"] != files[0].sum ||
		p.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != c.Hash || p.RunDetails.Builder.ID != "https://example.org/builder" || p.RunDetails.Metadata.InvocationID != "https://example.org/run/7" {
		t.Errorf("%s", text)
	}
	if again, err := made(c, files, map[string]string{"ziglang": "0", "go": "go1"}); err != nil || !bytes.Equal(text, again) {
		t.Errorf("twice is not the same, %v", err)
	}
}

// TestFinish: the checksums are what coreutils read, and a key is given to cosign with them.
func TestFinish(t *testing.T) {
	dist := t.TempDir()
	write(t, filepath.Join(dist, "a"), "a")
	if err := finish(t.Context(), dist, signer{cosign: "false"}); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sums)
	check.Dir = dist
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%s: %v", out, err)
	}
	if err := finish(t.Context(), dist, signer{cosign: "false", key: "key"}); err == nil || !strings.Contains(err.Error(), "false sign-blob --yes") {
		t.Error(err)
	}
}
