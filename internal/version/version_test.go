package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

// TestString covers what the linker says, and what Go recorded where it says nothing.
func TestString(t *testing.T) {
	hash := "c0f27fe1" + strings.Repeat("0", 32)
	t.Cleanup(func() { commit, state = "", "" })
	for _, c := range []struct{ commit, state, want, text string }{
		{hash, stateRelease, Number, " (commit c0f27fe1) go1"},
		{hash, "", Number + "-dev+c0f27fe1", " go1"},
		{hash, stateDirty, Number + "-dev+c0f27fe1.dirty", " go1"},
		{"next", "", Number + "-dev+next", " go1"},
	} {
		commit, state = c.commit, c.state
		if String() != c.want || !strings.HasPrefix(Text(), "regroup "+c.want+c.text) || Commit() != c.commit {
			t.Errorf("%+v: %q, %q", c, String(), Text())
		}
	}
	commit, state = "", ""
	if String() != Number+"-dev" { // tests are built without a commit
		t.Errorf("%q", String())
	}
	for _, c := range []struct{ module, revision, modified, hash, state string }{
		{"v" + Number, "", "", "", stateRelease}, // go install of the tag
		{"v" + Number, hash, "false", hash, stateRelease},
		{"v" + Number + "+dirty", hash, "true", hash, stateDirty},
		{"v0.0.1", hash, "false", hash, ""},
		{"(devel)", "", "", "", ""},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: c.module}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: c.revision}, {Key: "vcs.modified", Value: c.modified}}}
		if hash, state := recorded(info); hash != c.hash || state != c.state {
			t.Errorf("%+v: %q, %q", c, hash, state)
		}
	}
}
