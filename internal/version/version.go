// Package version has the version of everything that one release holds: the binary, the Python
// package, the C library, the images and the chart.
//
// Number is where it is written. `make version VERSION=0.2.0` changes it and its copies in files
// that cannot read Go (package copies), and a test fails when they differ.
package version

import (
	"runtime"
	"runtime/debug"
)

// Number is the version of this tree, as in the tag of its release without the v.
const Number = "0.1.0"

// Set by the linker; empty in what go build, go install or go test makes without flags.
var (
	commit string // the hash, in full
	state  string // stateRelease or stateDirty; empty = a commit that is not a release
)

const (
	stateRelease = "release" // the commit has the tag of Number, and nothing else was in the tree
	stateDirty   = "dirty"   // the tree had more than the commit
)

// String returns the version of this build: 0.1.0 of a release, otherwise 0.1.0-dev+c0f27fe1, with
// .dirty behind it if the tree differed from the commit, or 0.1.0-dev if the commit is unknown.
func String() string {
	hash, state := build()
	switch {
	case state == stateRelease:
		return Number
	case hash == "":
		return Number + "-dev"
	case state == stateDirty:
		return Number + "-dev+" + short(hash) + ".dirty"
	}
	return Number + "-dev+" + short(hash)
}

// Commit returns the hash of the commit that this was built of; empty = unknown.
func Commit() string {
	hash, _ := build()
	return hash
}

// Text is a line for people: regroup 0.1.0 (commit c0f27fe1) go1.26.8.
func Text() string {
	text := "regroup " + String()
	if hash, state := build(); state == stateRelease && hash != "" {
		text += " (commit " + short(hash) + ")"
	}
	return text + " " + runtime.Version()
}

// build returns the commit and its state, from the linker or else from what Go recorded: go install
// of a tag knows the tag alone, go build in a checkout the commit too.
func build() (hash, how string) {
	info, ok := debug.ReadBuildInfo()
	if commit != "" || !ok {
		return commit, state
	}
	return recorded(info)
}

func recorded(info *debug.BuildInfo) (hash, how string) {
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			hash = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			how = stateDirty
		}
	}
	if info.Main.Version == "v"+Number {
		how = stateRelease
	}
	return hash, how
}

func short(hash string) string {
	return hash[:min(8, len(hash))]
}
