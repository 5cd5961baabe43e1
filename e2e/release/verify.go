package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/version"
)

// key makes a pair of keys of cosign, if there is a cosign.
func (r *rig) key(ctx context.Context) error {
	switch _, err := exec.LookPath("cosign"); {
	case errors.Is(err, exec.ErrNotFound):
		fmt.Println("no cosign on PATH: signatures are not tried")
		return nil
	case err != nil:
		return err
	}
	if _, err := output(ctx, r.dir, []string{"COSIGN_PASSWORD="}, "cosign", "generate-key-pair"); err != nil {
		return err
	}
	r.signed = []string{"COSIGN_KEY=" + filepath.Join(r.dir, "cosign.key")}
	return os.Setenv("COSIGN_PASSWORD", "")
}

// sums verifies a release as its users do.
func (r *rig) sums(ctx context.Context) error {
	dist := r.dist(r.first)
	if _, err := output(ctx, dist, nil, "sha256sum", "--check", "--strict", "SHA256SUMS"); err != nil {
		return err
	}
	fmt.Println("checksums: good")
	if r.signed == nil {
		return nil
	}
	verify := []string{"verify-blob", "--key", filepath.Join(r.dir, "cosign.pub"), "--signature", "SHA256SUMS.sig", "--insecure-ignore-tlog=true"}
	if _, err := output(ctx, dist, nil, "cosign", append(verify, "SHA256SUMS")...); err != nil {
		return err
	}
	if _, err := output(ctx, dist, nil, "cosign", append(verify, filepath.Base(r.file("regroup-VERSION.notes.md")))...); err == nil {
		return errors.New("cosign verifies the signature with another file")
	}
	fmt.Println("signature: good, and not that of another file")
	return nil
}

// bill: the SBOM names every module that Go recorded in the programs of the archives and wheels.
func (r *rig) bill(context.Context) error {
	text, err := os.ReadFile(r.file("regroup-VERSION.cdx.json"))
	if err != nil {
		return err
	}
	var doc struct {
		BomFormat  string
		Components []struct{ Purl string }
	}
	if err := json.Unmarshal(text, &doc); err != nil || doc.BomFormat != "CycloneDX" {
		return fmt.Errorf("the SBOM has the format %q: %w", doc.BomFormat, err)
	}
	named := map[string]bool{}
	for _, c := range doc.Components {
		named[c.Purl] = true
	}
	if !named["pkg:pypi/regroup-elastic@"+version.Number] {
		return errors.New("the SBOM does not name the Python package")
	}
	programs, err := r.programs()
	if err != nil {
		return err
	}
	for name, content := range programs {
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, m := range info.Deps {
			if !named["pkg:golang/"+m.Path+"@"+m.Version] {
				return fmt.Errorf("the SBOM does not name %s %s, which is in %s", m.Path, m.Version, name)
			}
		}
		fmt.Printf("SBOM: names the %s of %s\n", english.Plural(len(info.Deps), "module"), name)
	}
	return nil
}

// programs returns what Go linked, by the artefact and the name in it.
func (r *rig) programs() (map[string][]byte, error) {
	programs := map[string][]byte{}
	for _, arch := range []string{"amd64", "arm64"} {
		name := r.file("regroup-VERSION-linux-" + arch + ".tar.gz")
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		for tr := tar.NewReader(z); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			if h.Typeflag == tar.TypeReg && h.FileInfo().Mode()&0o111 != 0 {
				if programs[filepath.Base(name)+" "+h.Name], err = io.ReadAll(tr); err != nil {
					return nil, err
				}
			}
		}
	}
	wheels, err := filepath.Glob(r.file("*.whl"))
	if err != nil {
		return nil, err
	}
	for _, name := range wheels {
		z, err := zip.OpenReader(name)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		for _, f := range z.File {
			if f.Mode().Perm()&0o022 != 0 || f.Mode().Perm()&0o444 != 0o444 {
				return nil, fmt.Errorf("%s in %s has the mode %v", f.Name, name, f.Mode())
			}
			if !slices.Contains([]string{"regroup", "mnist", "libregroup.so"}, filepath.Base(f.Name)) {
				continue
			}
			content, err := f.Open()
			if err != nil {
				return nil, err
			}
			if programs[filepath.Base(name)+" "+f.Name], err = io.ReadAll(content); err != nil {
				return nil, err
			}
		}
	}
	if len(programs) != 10 {
		return nil, fmt.Errorf("found %s, want two in each archive and three in each wheel", english.Plural(len(programs), "program"))
	}
	return programs, nil
}

// images: buildah reads both processors of each image, and their labels.
func (r *rig) images(ctx context.Context) error {
	for _, image := range []string{"regroup", "regroup-agent"} {
		for _, arch := range []string{"amd64", "arm64"} {
			store := filepath.Join(r.dir, "store")
			buildah := func(args ...string) (string, error) {
				return output(ctx, r.dir, nil, "buildah", append([]string{"--root", store, "--runroot", store + "-run", "--storage-driver", "vfs"}, args...)...)
			}
			id, err := buildah("pull", "-q", "--arch", arch, "oci-archive:"+r.file(image+"-image-VERSION.oci.tar"))
			if err != nil {
				return err
			}
			said, err := buildah("inspect", "--type", "image", "--format", `{{.OCIv1.Architecture}} {{index .OCIv1.Config.Labels "org.opencontainers.image.version"}} {{index .OCIv1.Config.Labels "org.opencontainers.image.title"}}`, id)
			if err != nil {
				return err
			}
			if want := strings.Join([]string{arch, version.Number, image}, " "); said != want {
				return fmt.Errorf("the image says %q, want %q", said, want)
			}
			fmt.Printf("image: %s, %s\n", said, id)
			if err := os.RemoveAll(store); err != nil {
				return err
			}
		}
	}
	return nil
}

// chart: Helm reads what the release has of the chart.
func (r *rig) chart(ctx context.Context) error {
	said, err := output(ctx, filepath.Join(r.first, "deploy/helm/check"), nil, "go", "test", "-count=1", "-run", "TestPackaged", "-v", ".",
		"-released", r.file("regroup-VERSION.tgz"), "-layout", r.file("regroup-chart-VERSION.oci.tar"))
	if err == nil && !strings.Contains(said, "--- PASS: TestPackaged") {
		err = fmt.Errorf("the chart was not checked: %s", said)
	}
	if err == nil {
		fmt.Println("chart: Helm reads it as it is in the tree, packaged and as an OCI layout")
	}
	return err
}
