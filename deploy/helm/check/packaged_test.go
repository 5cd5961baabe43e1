package check

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"reflect"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/registry"
)

var (
	released = flag.String("released", "", "the packaged chart of a release; empty = one that Helm packages now")
	layout   = flag.String("layout", "", "the same as an OCI layout in a tar archive; empty = none")
)

// TestPackaged: Helm reads of a packaged chart what the tree has.
func TestPackaged(t *testing.T) {
	tree, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Metadata.Version == "" || tree.Metadata.Version != tree.Metadata.AppVersion {
		t.Errorf("the chart is %s, and of Regroup %s", tree.Metadata.Version, tree.Metadata.AppVersion)
	}
	file := *released
	if file == "" {
		if file, err = chartutil.Save(tree, t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	same(t, tree, b)
	if *layout != "" {
		same(t, tree, content(t, *layout))
	}
}

// same compares a packaged chart with the tree.
func same(t *testing.T, tree *chart.Chart, packaged []byte) {
	t.Helper()
	c, err := loader.LoadArchive(bytes.NewReader(packaged))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Metadata, tree.Metadata) || len(c.Templates) != len(tree.Templates) {
		t.Errorf("%+v has %d templates, %+v has %d", c.Metadata, len(c.Templates), tree.Metadata, len(tree.Templates))
	}
	for i, f := range tree.Templates {
		if c.Templates[i].Name != f.Name || !bytes.Equal(c.Templates[i].Data, f.Data) {
			t.Errorf("%s differs", f.Name)
		}
	}
	if !bytes.Equal(c.Schema, tree.Schema) {
		t.Error("the schema of the values differs")
	}
}

// content returns the packaged chart that an OCI layout has, found as Helm finds it in a registry.
func content(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
	type descriptor struct{ MediaType, Digest string }
	blob := func(d descriptor, into any) []byte {
		t.Helper()
		hash := d.Digest[len("sha256:"):]
		b := files["blobs/sha256/"+hash]
		if n := sha256.Sum256(b); hex.EncodeToString(n[:]) != hash {
			t.Fatalf("%s is damaged or missing", d.Digest)
		}
		if into != nil {
			if err := json.Unmarshal(b, into); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%s: %v", files["index.json"], err)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob(index.Manifests[0], &manifest)
	if manifest.Config.MediaType != registry.ConfigMediaType || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != registry.ChartLayerMediaType {
		t.Fatalf("%+v", manifest)
	}
	var about chart.Metadata
	blob(manifest.Config, &about)
	if err := about.Validate(); err != nil {
		t.Error(err)
	}
	return blob(manifest.Layers[0], nil)
}
