package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
)

// TestUnusableCredentialsCostNoConnection: what was in use is offered instead of what is known not
// to be usable, in turn with it where only a broker says so.
func TestUnusableCredentialsCostNoConnection(t *testing.T) {
	d := newDir(t)
	creds := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(d.Credentials(name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	issue(t, d, access.RoleClient, "ada")
	issue(t, d, access.RoleClient, "bob")
	first := creds("ada")
	if _, err := d.Rotate("ada", true); err != nil {
		t.Fatal(err)
	}
	second, other := creds("ada"), creds("bob")
	f := &File{Path: filepath.Join(t.TempDir(), "user.creds")}
	put := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(f.Path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	offers := func(when string, want []byte) {
		t.Helper()
		got, err := f.Claims()
		if err != nil {
			t.Fatal(err)
		}
		if claims, err := jwt.ParseDecoratedJWT(want); err != nil || got != claims {
			t.Errorf("%s: other claims are offered: %v", when, err)
		}
	}
	put(first)
	offers("at first", first)
	f.Admitted()
	put(other)
	offers("those of another user", first)
	put([]byte("no credentials"))
	offers("no credentials", first)
	put(second)
	offers("new ones", second)
	f.Refuse(second)
	offers("new ones that were refused", first)
	offers("and again", second)
	offers("and again", first)
	f.Refuse(nil)
	offers("once they are admitted", second)
	f.Admitted()
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	offers("no file", second)
}

// TestWhatCredentialsPermit is known before a broker is asked: a broker tells a client only that it
// has refused something.
func TestWhatCredentialsPermit(t *testing.T) {
	d := newDir(t)
	issue(t, d, access.RoleSubmitter, "ada")
	read := func(name string) []byte {
		t.Helper()
		creds, err := os.ReadFile(d.Credentials(name))
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	answers := events.AnswerSubject("node-a", "x")
	for name, deaf := range map[string]bool{events.ServiceDiscovery: false, string(access.RoleAll): false, events.ServiceRegistry: true, "ada": true} {
		if Deaf(read(name), answers) != deaf {
			t.Errorf("%s may hear the answers of agents: %v", name, deaf)
		}
	}
	if s, ok := Submitter(read("ada")); !ok || s != (events.Submitter{Name: "ada"}) {
		t.Errorf("ada is the submitter %+v, %v", s, ok)
	}
	for _, name := range []string{string(access.RoleAll), string(access.RoleGateway)} { // who may publish all commands is none
		if s, ok := Submitter(read(name)); ok {
			t.Errorf("%s is the submitter %+v", name, s)
		}
	}
}
