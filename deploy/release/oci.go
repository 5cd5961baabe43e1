package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A layout is an OCI image layout that is being written into an archive: what skopeo, buildah and
// oras read as oci-archive, and copy to a registry.
type layout struct {
	blobs map[digest.Digest][]byte
}

func newLayout() *layout { return &layout{map[digest.Digest][]byte{}} }

func (l *layout) add(mediaType string, content []byte) ocispec.Descriptor {
	d := digest.FromBytes(content)
	l.blobs[d] = content
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(content))}
}

func (l *layout) addJSON(mediaType string, value any) (ocispec.Descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return l.add(mediaType, content), nil
}

// image adds an image that deploy/image.sh wrote for `docker load`. Its configuration stays as it
// is, so the id is the one that docker shows.
func (l *layout) image(file string) (ocispec.Descriptor, map[string]string, error) {
	fail := func(err error) (ocispec.Descriptor, map[string]string, error) {
		return ocispec.Descriptor{}, nil, fmt.Errorf("%s: %w", file, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fail(err)
	}
	files, err := untar(bytes.NewReader(content))
	if err != nil {
		return fail(err)
	}
	var listed []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &listed); err != nil {
		return fail(err)
	}
	if len(listed) != 1 {
		return fail(fmt.Errorf("it has %d images, want one", len(listed)))
	}
	var config ocispec.Image
	if err := json.Unmarshal(files[listed[0].Config], &config); err != nil {
		return fail(err)
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Annotations: config.Config.Labels}
	m.Config = l.add(ocispec.MediaTypeImageConfig, files[listed[0].Config])
	for i, name := range listed[0].Layers {
		if i >= len(config.RootFS.DiffIDs) || digest.FromBytes(files[name]) != config.RootFS.DiffIDs[i] {
			return fail(fmt.Errorf("layer %s is not the one that its configuration names", name))
		}
		zipped, err := compressed(files[name])
		if err != nil {
			return fail(err)
		}
		m.Layers = append(m.Layers, l.add(ocispec.MediaTypeImageLayerGzip, zipped))
	}
	d, err := l.addJSON(m.MediaType, m)
	d.Platform = &ocispec.Platform{OS: config.OS, Architecture: config.Architecture}
	return d, config.Config.Labels, err
}

// images writes the archive of one image for several processors, under a tag.
func images(to, tag string, at time.Time, files []string) error {
	l := newLayout()
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, file := range files {
		d, labels, err := l.image(file)
		if err != nil {
			return err
		}
		index.Manifests, index.Annotations = append(index.Manifests, d), labels
	}
	d, err := l.addJSON(index.MediaType, index)
	if err != nil {
		return err
	}
	return l.write(to, tag, d, at)
}

// write makes the archive, in which a tag names a descriptor.
func (l *layout) write(to, tag string, d ocispec.Descriptor, at time.Time) error {
	d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	top, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{d}})
	if err != nil {
		return err
	}
	marker, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	entries := []entry{{ocispec.ImageIndexFile, 0o644, top}, {ocispec.ImageLayoutFile, 0o644, marker}}
	for d, content := range l.blobs {
		entries = append(entries, entry{ocispec.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded(), 0o644, content})
	}
	content, err := tarball(entries, at)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
