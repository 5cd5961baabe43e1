package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/regroup-io/regroup/internal/version"
)

// A bill is a CycloneDX document that is being written.
type bill struct {
	components map[string]cdx.Component // by purl, or by file
	needs      map[string][]string      // what each of them is made of
}

// billOf lists what is in the binaries, in the dashboard and in the wheel: each Go module that the
// linker recorded, Go's own library, and the libraries of npm.
func billOf(root string, binaries []string, c commit) ([]byte, error) {
	b := bill{map[string]cdx.Component{}, map[string][]string{}}
	self := "pkg:golang/" + module + "@v" + version.Number
	python := "pkg:pypi/regroup-elastic@" + version.Number
	b.components[python] = cdx.Component{
		BOMRef: python, Type: cdx.ComponentTypeLibrary, Name: "regroup-elastic", Version: version.Number, PackageURL: python, Licenses: licensed(license),
		Description: "the Python package; it needs nothing but Python's own library",
	}
	npm, err := b.dashboard(filepath.Join(root, "services/gateway/dashboard/vendor.lock"))
	if err != nil {
		return nil, err
	}
	for _, file := range binaries {
		ref, err := b.binary(root, file)
		if err != nil {
			return nil, err
		}
		b.needs[self] = append(b.needs[self], ref)
		switch name := filepath.Base(file); name {
		case "regroup":
			b.needs[ref] = append(b.needs[ref], npm...)
			b.needs[python] = append(b.needs[python], ref)
		case "libregroup.so", "mnist":
			b.needs[python] = append(b.needs[python], ref)
		}
	}
	b.needs[self] = append(b.needs[self], python)
	return b.document(self, c)
}

// binary adds a file that Go linked, and its modules.
func (b bill) binary(root, file string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	ref := "file:" + strings.TrimPrefix(file, "bin/")
	b.components[ref] = cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeFile, Name: strings.TrimPrefix(ref, "file:"), Version: version.Number, Licenses: licensed(license),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum(content)}},
	}
	library := "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")
	b.components[library] = cdx.Component{BOMRef: library, Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: info.GoVersion, PackageURL: library, Licenses: licensed("BSD-3-Clause")}
	b.needs[ref] = append(b.needs[ref], library)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		// The sum of go.sum: of the module's files, not of one file.
		b.components[purl] = cdx.Component{
			BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl,
			Properties: &[]cdx.Property{{Name: "go:sum", Value: m.Sum}},
		}
		b.needs[ref] = append(b.needs[ref], purl)
	}
	return ref, nil
}

// dashboard adds the libraries of npm that are in the binary, and returns them.
func (b bill) dashboard(lock string) ([]string, error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var refs []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[0] == "#" {
			continue
		}
		name, number := fields[1], fields[2]
		purl := "pkg:npm/" + strings.Replace(name, "@", url.QueryEscape("@"), 1) + "@" + number
		b.components[purl] = cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: name, Version: number, PackageURL: purl, Licenses: licensed(fields[3])}
		refs = append(refs, purl)
	}
	if len(refs) == 0 {
		return nil, fmt.Errorf("%s lists no library", lock)
	}
	return refs, nil
}

func (b bill) document(self string, c commit) ([]byte, error) {
	doc := cdx.NewBOM()
	doc.Metadata = &cdx.Metadata{
		Timestamp: c.Time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: self, Type: cdx.ComponentTypeApplication, Name: "regroup", Version: version.Number, PackageURL: self, Licenses: licensed(license),
			ExternalReferences: &[]cdx.ExternalReference{{URL: project, Type: cdx.ERTypeVCS, Comment: "commit " + c.Hash}},
		},
	}
	components := slices.SortedFunc(maps.Values(b.components), func(x, y cdx.Component) int { return strings.Compare(x.BOMRef, y.BOMRef) })
	doc.Components = &components
	var dependencies []cdx.Dependency
	for ref, needs := range b.needs {
		slices.Sort(needs)
		needs = slices.Compact(needs)
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &needs})
	}
	slices.SortFunc(dependencies, func(x, y cdx.Dependency) int { return cmp.Compare(x.Ref, y.Ref) })
	doc.Dependencies = &dependencies
	// Each document has a number of its own; this one's follows from the commit.
	n := sha256.Sum256([]byte(self + " " + c.Hash))
	n[6], n[8] = n[6]&0x0f|0x80, n[8]&0x3f|0x80 // a UUID of version 8
	doc.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", n[:4], n[4:6], n[6:8], n[8:10], n[10:16])
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(doc)
	return out.Bytes(), err
}

func licensed(id string) *cdx.Licenses {
	return &cdx.Licenses{{License: &cdx.License{ID: id}}}
}

func sum(content []byte) string {
	n := sha256.Sum256(content)
	return hex.EncodeToString(n[:])
}
