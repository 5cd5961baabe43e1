package identity

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
)

func directory(t *testing.T) Dir {
	t.Helper()
	d, err := Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1", "broker.lab"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestATokenHasWhatWasPutInIt: for each role the credentials and the authority are the bytes of the
// files, and a terminal passes the line on.
func TestATokenHasWhatWasPutInIt(t *testing.T) {
	d := directory(t)
	ca, err := os.ReadFile(d.CA())
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range access.Roles() {
		i := access.Identity{Role: role, Name: "new-" + string(role)}
		if role.OfNode() {
			i.Node = access.AnyNode
		}
		u, err := d.Issue(i, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		text, err := d.JoinToken(u.Name, "nats://broker.lab:4222,tls://127.0.0.1:4223")
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 4095 || strings.ContainsAny(text, " \n") {
			t.Errorf("%s: a token of %d bytes", role, len(text))
		}
		creds, err := os.ReadFile(d.Credentials(u.Name))
		if err != nil {
			t.Fatal(err)
		}
		broken := "  " + text[:100] + "\r\n\t" + text[100:] + "\n" // on its way
		j, err := ParseJoin(broken)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(j.Credentials, creds) || !bytes.Equal(j.Authority, ca) || !j.Expires.Equal(u.Expires) {
			t.Errorf("%s: another user, authority or end comes out", role)
		}
		if j.User != u.Name || j.Role != role || j.Node != i.Node || j.Servers != "nats://broker.lab:4222,tls://127.0.0.1:4223" {
			t.Errorf("%s: %s %s %s %s comes out", role, j.User, j.Role, j.Node, j.Servers)
		}
	}
	all, err := d.Users()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range all {
		if u.Token != strings.HasPrefix(u.Name, "new-") {
			t.Errorf("%s: listed as a token: %v", u.Name, u.Token)
		}
	}
}

// TestADamagedTokenIsRefused: whatever is cut off or changed, and nothing of it is in the error.
func TestADamagedTokenIsRefused(t *testing.T) {
	d := directory(t)
	if _, err := d.Issue(access.Identity{Role: access.RoleAgent, Name: "node-a", Node: "node-a"}, 0); err != nil {
		t.Fatal(err)
	}
	text, err := d.JoinToken("node-a", "nats://broker.lab:4222")
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, text, want string) {
		t.Helper()
		_, err := ParseJoin(text)
		if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		} else if len(text) > 60 && strings.Contains(err.Error(), text[20:40]) {
			t.Errorf("%s: the error has the token: %v", what, err)
		}
	}
	for n := len("rgjoin1_"); n < len(text); n++ {
		refused("cut off", text[:n], "incomplete or damaged")
		other := byte('A')
		if text[n] == other {
			other = 'B'
		}
		if n < len(text)-1 { // the last digit has bits of no meaning
			refused("changed", text[:n]+string(other)+text[n+1:], "incomplete or damaged")
		}
	}
	refused("of another version", "rgjoin2_"+strings.TrimPrefix(text, "rgjoin1_"), `of version "2"`)
	refused("nothing", "", "is no join token")
	refused("a token of a gateway", "rg_abcdef", "is no join token")
	refused("a path", "/etc/regroup/node-a.token", "is no join token")
	refused("too long", text+strings.Repeat("A", 1<<16), "at most")
	refused("no base64", text[:200]+"*"+text[201:], "incomplete or damaged")
	if _, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, "rgjoin1_")); err != nil {
		t.Errorf("the token is no base64: %v", err)
	}
}

// TestATokenNamesAnAddressThatTheBrokersCanProve: otherwise the machine would be refused, or would
// refuse them, when it is too late to ask.
func TestATokenNamesAnAddressThatTheBrokersCanProve(t *testing.T) {
	d := directory(t)
	for servers, want := range map[string]string{
		"":                             "broker.lab",
		"broker.lab:4222":              "no URL",
		"http://broker.lab:4222":       "no URL",
		"nats://me:pw@broker.lab:4222": "has a user",
		"nats://10.9.8.7:4222":         "regroup auth rotate --certificates --host 10.9.8.7",
		"nats://broker.lab,nats://x":   "not for x",
	} {
		if err := d.CheckServers(servers); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: %v, want %q", servers, err, want)
		}
	}
	for _, servers := range []string{"nats://broker.lab:4222", "tls://127.0.0.1:4222, nats://broker.lab"} {
		if err := d.CheckServers(servers); err != nil {
			t.Errorf("%q: %v", servers, err)
		}
	}
}

// FuzzParseJoin: no text makes it panic, and what it accepts has credentials.
func FuzzParseJoin(f *testing.F) {
	f.Add("rgjoin1_AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if j, err := ParseJoin(text); err == nil && len(j.Credentials) == 0 {
			t.Error("a token without credentials is accepted")
		}
	})
}
