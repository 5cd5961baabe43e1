package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/regroup-io/regroup/internal/version"
)

// buildType says how the fields of the provenance are meant.
const buildType = project + "/blob/main/docs/release.md#provenance"

// made returns an in-toto statement with SLSA provenance about files: who built them, from which
// commit, with which tools. A workflow names itself in RELEASE_BUILDER and RELEASE_RUN.
func made(c commit, files []file, tools map[string]string) ([]byte, error) {
	parameters, err := structpb.NewStruct(map[string]any{"tag": "v" + version.Number, "command": "make release"})
	if err != nil {
		return nil, err
	}
	sources := []*intoto.ResourceDescriptor{{Uri: "git+" + project + "@refs/tags/v" + version.Number, Digest: map[string]string{"gitCommit": c.Hash}}}
	for _, name := range sorted(tools) {
		sources = append(sources, &intoto.ResourceDescriptor{Name: name, Annotations: &structpb.Struct{Fields: map[string]*structpb.Value{"version": structpb.NewStringValue(tools[name])}}})
	}
	p := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{BuildType: buildType, ExternalParameters: parameters, ResolvedDependencies: sources},
		RunDetails:      &provenance.RunDetails{Builder: &provenance.Builder{Id: cmp.Or(os.Getenv("RELEASE_BUILDER"), project+"/blob/main/docs/release.md#by-hand")}},
	}
	if run := os.Getenv("RELEASE_RUN"); run != "" {
		p.RunDetails.Metadata = &provenance.BuildMetadata{InvocationId: run}
	}
	text, err := protojson.Marshal(p)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return nil, err
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: "https://slsa.dev/provenance/v1", Predicate: predicate}
	for _, f := range files {
		s.Subject = append(s.Subject, &intoto.ResourceDescriptor{Name: f.name, Digest: map[string]string{"sha256": f.sum}})
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if text, err = protojson.Marshal(s); err != nil {
		return nil, err
	}
	var out bytes.Buffer // protojson varies its spaces on purpose
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, err
	}
	return append(out.Bytes(), '\n'), nil
}
