package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestVersion covers the command and the flag, as text and JSON.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	cmd := versionCommand(&out)
	cmd.SetArgs([]string{"-o", "json"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	var r release
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !reflect.DeepEqual(r, released()) || len(r.Modules) < 10 || r.Version == "" || !strings.HasPrefix(r.Go, "go1") {
		t.Errorf("%s, %v", out.String(), err)
	}
	root, err := newRoot()
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	root.SetOut(&out)
	root.SetArgs([]string{"--version"})
	if err := root.Execute(); err != nil || out.String() != versionText()+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
