package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/regroup-io/regroup/internal/version"
)

const chartDir = "deploy/helm/regroup"

// What Helm calls the parts of a chart in a registry.
const (
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// packaged returns the chart as `helm package` makes it, with the times of the commit.
func packaged(ctx context.Context, root string, at time.Time) ([]byte, error) {
	listed, err := output(ctx, root, "git", "ls-files", chartDir)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, file := range strings.Fields(listed) {
		e, err := archived("regroup/"+strings.TrimPrefix(file, chartDir+"/"), 0o644, filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	content, err := tarball(entries, at)
	if err != nil {
		return nil, err
	}
	return compressed(content)
}

// chart writes the chart as an archive for `helm install FILE`, and as an OCI layout for
// registries.
func chart(ctx context.Context, root, file, layoutFile string, c commit) error {
	content, err := packaged(ctx, root, c.Time)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return err
	}
	about := map[string]string{}
	text, err := os.ReadFile(filepath.Join(root, chartDir, "Chart.yaml"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) { // the file is flat
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		about[key] = strings.Trim(value, `"`)
	}
	l := newLayout()
	config, err := json.Marshal(about)
	if err != nil {
		return err
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: l.add(chartConfig, config),
		Layers: []ocispec.Descriptor{l.add(chartContent, content)},
		Annotations: map[string]string{
			ocispec.AnnotationTitle: about["name"], ocispec.AnnotationVersion: version.Number, ocispec.AnnotationDescription: about["description"],
			ocispec.AnnotationRevision: c.Hash, ocispec.AnnotationSource: project, ocispec.AnnotationLicenses: license, ocispec.AnnotationCreated: c.Time.Format(time.RFC3339),
		},
	}
	d, err := l.addJSON(m.MediaType, m)
	if err != nil {
		return err
	}
	return l.write(layoutFile, version.Number, d, c.Time)
}
