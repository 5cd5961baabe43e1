package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

var at = time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC)

// TestTarball: the bytes depend on the content alone, not on the order in which it is given.
func TestTarball(t *testing.T) {
	a, b := entry{"a/b/one", 0o755, []byte("1")}, entry{"a/two", 0o644, []byte("2")}
	first, err := tarball([]entry{a, b}, at)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := tarball([]entry{b, a}, at); err != nil || !bytes.Equal(first, second) {
		t.Errorf("the bytes differ, %v", err)
	}
	var names []string
	for tr := tar.NewReader(bytes.NewReader(first)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if want := map[bool]int64{true: 0o644, false: 0o755}[h.Name == "a/two"]; h.Mode != want || !h.ModTime.Equal(at) || h.Uid != 0 {
			t.Errorf("%+v", h)
		}
	}
	if got := strings.Join(names, " "); got != "a/ a/b/ a/b/one a/two" {
		t.Error(got)
	}
}

// docker writes an archive as deploy/image.sh does, and returns its configuration.
func docker(t *testing.T, file, arch, layer string) []byte {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "docker_version": "", "config": map[string]any{"Labels": map[string]string{"org.opencontainers.image.version": "0.1.0"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []digest.Digest{digest.FromString("layer")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := tarball([]entry{{"manifest.json", 0o644, []byte(`[{"Config":"c.json","Layers":["l.tar"]}]`)}, {"c.json", 0o644, config}, {"l.tar", 0o644, []byte(layer)}}, at)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(content))
	return config
}

// TestImages: both processors are in one index, and every blob has the digest that refers to it.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	one, two, to := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "to")
	config := docker(t, one, "amd64", "layer")
	docker(t, two, "arm64", "layer")
	if err := images(to, "0.1.0", at, []string{one, two}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	files, err := untar(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	read := func(d ocispec.Descriptor, into any) []byte {
		t.Helper()
		b := files["blobs/sha256/"+d.Digest.Encoded()]
		if digest.FromBytes(b) != d.Digest || int64(len(b)) != d.Size {
			t.Fatalf("%s is not there", d.Digest)
		}
		if into != nil {
			if err := json.Unmarshal(b, into); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	var top, index ocispec.Index
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "0.1.0" {
		t.Fatalf("%s, %v", files["index.json"], err)
	}
	read(top.Manifests[0], &index)
	for i, arch := range []string{"amd64", "arm64"} {
		if index.Manifests[i].Platform.Architecture != arch {
			t.Errorf("%+v", index.Manifests[i])
		}
		var m ocispec.Manifest
		read(index.Manifests[i], &m)
		if m.Annotations["org.opencontainers.image.version"] != "0.1.0" || len(m.Layers) != 1 {
			t.Errorf("%+v", m)
		}
		if got := read(m.Config, nil); arch == "amd64" && !bytes.Equal(got, config) {
			t.Errorf("the configuration, and so the id, is another: %s", got)
		}
		read(m.Layers[0], nil)
	}
	docker(t, two, "arm64", "damaged")
	if err := images(to, "0.1.0", at, []string{one, two}); err == nil || !strings.Contains(err.Error(), "layer l.tar is not the one") {
		t.Error(err)
	}
}
