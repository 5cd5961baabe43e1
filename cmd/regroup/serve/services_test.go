package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/discovery"
)

// TestAHostSourceThatIsNotThere is a mistake in the call; one that fails may be right a moment
// later.
func TestAHostSourceThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("a:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for name, c := range map[string]struct {
		hosts  discovery.HostConfig
		code   errcode.Code
		reason string
	}{
		"a file that is not there":             {discovery.HostConfig{HostFile: missing}, errcode.Invalid, missing},
		"a script that is not there":           {discovery.HostConfig{HostScript: missing}, errcode.Invalid, missing},
		"one with arguments":                   {discovery.HostConfig{HostScript: missing + " --all"}, errcode.Invalid, missing},
		"a command that is not there":          {discovery.HostConfig{HostScript: "no-such-command-of-hosts"}, errcode.Invalid, "no-such-command-of-hosts"},
		"a script that may not be run":         {discovery.HostConfig{HostScript: plain}, errcode.Invalid, "permission denied"},
		"one with arguments that may not":      {discovery.HostConfig{HostScript: plain + " --all"}, errcode.Invalid, plain},
		"a script that fails":                  {discovery.HostConfig{HostScript: "echo away >&2; exit 3"}, errcode.Unavailable, "away"},
		"a file that says which hosts to use":  {discovery.HostConfig{HostFile: plain}, "", ""},
		"a script that says which ones to use": {discovery.HostConfig{HostScript: "echo a:1"}, "", ""},
	} {
		d := DiscoveryConfig{discovery.DefaultConfig()}
		c.hosts.HostEvery, c.hosts.HostWithin = d.HostEvery, d.HostWithin
		d.HostConfig = c.hosts
		if err := d.Check(t.Context()); errcode.Of(err) != c.code || err != nil && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v, want %q with %q", name, err, c.code, c.reason)
		}
	}
}
