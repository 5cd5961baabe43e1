package identity

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"

	"github.com/regroup-io/regroup/events/access"
)

func newDir(t *testing.T) Dir {
	t.Helper()
	d, err := Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// accounts returns the claims of all accounts by their names.
func accounts(t *testing.T, d Dir) map[string]*jwt.AccountClaims {
	t.Helper()
	keys, err := d.Accounts()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*jwt.AccountClaims{}
	for _, k := range keys {
		c, err := d.Account(k)
		if err != nil {
			t.Fatal(err)
		}
		all[c.Name] = c
	}
	return all
}

func issue(t *testing.T, d Dir, role access.Role, name string) *jwt.UserClaims {
	t.Helper()
	i := access.Identity{Role: role, Name: name}
	if role.OfNode() {
		i.Node = "node-a"
	}
	if _, err := d.Issue(i, 0); err != nil {
		t.Fatal(err)
	}
	creds, err := os.ReadFile(d.Credentials(name))
	if err != nil {
		t.Fatal(err)
	}
	claims, ok := claimsOf(creds)
	if !ok {
		t.Fatalf("no claims in %s", creds)
	}
	return claims
}

// TestPeopleAreInAnAccountOfTheirOwn, agents are too, and services are with the streams. Each is
// revoked in its own account.
func TestPeopleAreInAnAccountOfTheirOwn(t *testing.T) {
	d := newDir(t)
	for role, want := range map[access.Role]string{
		access.RoleClient: access.AccountClients, access.RoleViewer: access.AccountViewers, access.RoleGateway: access.AccountClients,
		access.RoleAgent: access.AccountAgents, access.RoleParticipant: access.AccountParticipants, access.RoleOperator: accountStreams, "scheduler": accountStreams,
	} {
		claims := issue(t, d, role, "a-"+string(role))
		if got := accounts(t, d)[want]; claims.Issuer != got.Subject {
			t.Errorf("%s is not in %s", role, want)
		}
		if err := d.Revoke("a-" + string(role)); err != nil {
			t.Fatal(err)
		}
		for name, c := range accounts(t, d) {
			if _, got := c.Revocations[claims.Subject]; got != (name == want) {
				t.Errorf("%s is revoked in %s: %v", role, name, got)
			}
		}
	}
}

// TestAccountsAreValid for the broker, which refuses patterns that overlap.
func TestAccountsAreValid(t *testing.T) {
	for name, c := range accounts(t, newDir(t)) {
		found := jwt.CreateValidationResults()
		c.Validate(found)
		for _, e := range found.Issues {
			t.Errorf("%s: %s", name, e.Description)
		}
	}
}

// TestIssuingChangesNoAccount: a broker applies each change, and what is asked meanwhile may stay
// without an answer.
func TestIssuingChangesNoAccount(t *testing.T) {
	d := newDir(t)
	read := func() (all [][]byte) {
		files, err := filepath.Glob(d.Path(accountsDir, "*.jwt"))
		if err != nil || len(files) != 2+len(access.OutsideAccounts()) {
			t.Fatalf("accounts: %v, %v", files, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		return all
	}
	before := read()
	issue(t, d, access.RoleClient, "ada")
	for n, b := range read() {
		if !bytes.Equal(b, before[n]) {
			t.Errorf("account %d has changed", n)
		}
	}
}

// TestADirectoryOfBeforeGetsTheAccount with the next user that belongs there.
func TestADirectoryOfBeforeGetsTheAccount(t *testing.T) {
	d := newDir(t)
	operator, err := d.key(operatorKey)
	if err != nil {
		t.Fatal(err)
	}
	all := accounts(t, d)
	streams := all[accountStreams]
	streams.Exports = nil
	if err := d.saveAccount(streams, operator); err != nil {
		t.Fatal(err)
	}
	for _, name := range access.OutsideAccounts() {
		for _, f := range []string{d.Path(keyOf(name)), d.Path(accountsDir, all[name].Subject+".jwt")} {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	claims := issue(t, d, access.RoleClient, "new")
	all = accounts(t, d)
	for _, name := range access.OutsideAccounts() {
		if len(all[name].Imports) == 0 || len(all[accountStreams].Exports) < len(all[name].Imports) {
			t.Errorf("the new account %s: %v", name, all[name])
		}
	}
	if claims.Issuer != all[access.AccountClients].Subject {
		t.Error("the new user is in another account")
	}
	if b, err := d.Broker(); err != nil || b.Account != all[accountStreams].Subject {
		t.Errorf("a broker takes the streams from %s: %v", b.Account, err)
	}
}
