package agent

import (
	"os"
	"strings"
	"testing"
)

func TestAccountOf(t *testing.T) {
	for text, c := range map[string]struct {
		euid     int
		uid, gid uint32
		wrong    string
	}{
		"root":          {0, 0, 0, ""},
		"54321:54322":   {0, 54321, 54322, ""}, // containers have users without names
		"54321":         {54321, 54321, 54321, ""},
		"no-such-user":  {0, 0, 0, "there is no user no-such-user"},
		"root:no-group": {0, 0, 0, "there is no group no-group"},
		"4294967295":    {0, 0, 0, "is no number"},
		"54321:1":       {1000, 0, 0, "runs as user 1000"},
	} {
		a, err := accountOf(text, c.euid)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %+v, %v, want an error with %q", text, a, err, c.wrong)
			}
		case err != nil || a.UID != c.uid || a.GID != c.gid:
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
}

// TestTheUserOfAJob: its own, else the agent's default, and never root beside a default.
func TestTheUserOfAJob(t *testing.T) {
	if a, err := (Options{}).account(""); a != nil || err != nil {
		t.Errorf("without any user: %+v, %v", a, err)
	}
	o := Options{DefaultUser: "54321:54322"}
	if os.Geteuid() != 0 {
		if _, err := o.account(""); err == nil || !strings.Contains(err.Error(), "--default-user: it is 54321:54322") {
			t.Errorf("an agent that is not root: %v", err)
		}
		return
	}
	if a, err := o.account(""); err != nil || a.UID != 54321 || a.GID != 54322 {
		t.Errorf("the default: %+v, %v", a, err)
	}
	if a, err := o.account("54323"); err != nil || a.UID != 54323 {
		t.Errorf("the job's: %+v, %v", a, err)
	}
	// A group is one of the user's, or the agent allows it.
	o.AllowGroups = []string{"54326"}
	for text, allowed := range map[string]bool{
		"54323:54323": true, "54321:54322": true, "54323:54322": true, "54323:54326": true, "54323:0": false, "54323:54327": false, "54321:shadow": false, "daemon:daemon": true, "daemon:shadow": false,
	} {
		if _, err := o.account(text); (err == nil) != allowed || err != nil && !strings.HasPrefix(err.Error(), "processes.user: ") {
			t.Errorf("%s: %v, want it allowed: %v", text, err, allowed)
		}
	}
	if a, err := (Options{}).account("54323:0"); err != nil || a.GID != 0 {
		t.Errorf("where jobs may run as root: %+v, %v", a, err)
	}
	if _, err := o.account("root"); err == nil || !strings.HasPrefix(err.Error(), "processes.user: ") {
		t.Errorf("root beside a default: %v", err)
	}
}
