package identity

import (
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
)

// Names of the accounts.
const (
	accountStreams = "regroup" // the services, the agents and the streams
	accountClients = "clients" // people and gateways
	accountSystem  = "system"
)

// initAccounts makes the operator and the accounts. The claims of the operator are written last:
// they mark the directory as complete.
func (d Dir) initAccounts() error {
	operator, err := d.newKey(operatorKey, nkeys.CreateOperator)
	if err != nil {
		return err
	}
	account, err := d.newKey(accountKey, nkeys.CreateAccount)
	if err != nil {
		return err
	}
	system, err := d.newKey(systemKey, nkeys.CreateAccount)
	if err != nil {
		return err
	}
	streams := jwt.NewAccountClaims(public(account))
	streams.Name = accountStreams
	streams.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit, MaxAckPending: jwt.NoLimit,
	}
	closings := jwt.NewAccountClaims(public(system))
	closings.Name = accountSystem
	for _, claims := range []*jwt.AccountClaims{streams, closings} {
		if err := d.saveAccount(claims, operator); err != nil {
			return err
		}
	}
	if err := d.connectAccounts(); err != nil {
		return err
	}
	claims := jwt.NewOperatorClaims(public(operator))
	claims.Name, claims.SystemAccount = "regroup", public(system)
	text, err := claims.Encode(operator)
	if err != nil {
		return failed(err)
	}
	return d.write(operatorJWT, []byte(text+"\n"))
}

// connectAccounts makes the account of those outside unless there is one, and lets it import from
// the account of the streams what package access says. Both are written only if that has changed,
// so that a directory of an earlier version gets what this one needs.
func (d Dir) connectAccounts() error {
	account, err := d.key(accountKey)
	if err != nil {
		return err
	}
	from, err := d.Account(public(account))
	if err != nil {
		return err
	}
	outside, err := d.key(clientsKey)
	if events.CodeOf(err) == events.NotFound {
		outside, err = d.newKey(clientsKey, nkeys.CreateAccount)
	}
	if err != nil {
		return err
	}
	to, err := d.Account(public(outside))
	if events.CodeOf(err) == events.NotFound {
		to, err = jwt.NewAccountClaims(public(outside)), nil
		to.Name = accountClients
	}
	if err != nil {
		return err
	}
	shared, err := access.ImportsOfOutside()
	if err != nil {
		return err
	}
	exports, imports := exchange(shared, from.Subject)
	if reflect.DeepEqual(from.Exports, exports) && reflect.DeepEqual(to.Imports, imports) {
		return nil
	}
	operator, err := d.key(operatorKey)
	if err != nil {
		return err
	}
	from.Exports, to.Imports = exports, imports
	if err := d.saveAccount(from, operator); err != nil { // first: nothing can be imported that is not exported
		return err
	}
	return d.saveAccount(to, operator)
}

// apiInfo is imported so that nats-server sees whose JetStream the account uses: without it each
// request is answered a second time, that the account has none (jetstream.go,
// enableJetStreamInfoServiceImportOnly). Nobody may publish to it.
const apiInfo = "$JS.API.INFO"

// exchange returns the two sides of what is shared. The broker remembers where the answer to a
// request goes until it comes. If there may be many it does so for two minutes, which is more than
// any request for the next messages of a consumer is open.
func exchange(shared access.Imports, account string) (exports jwt.Exports, imports jwt.Imports) {
	add := func(kind jwt.ExportType, answers jwt.ResponseType, subjects ...string) {
		for _, s := range subjects {
			exports.Add(&jwt.Export{Name: s, Subject: jwt.Subject(s), Type: kind, ResponseType: answers})
			imports.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: account, Type: kind})
		}
	}
	add(jwt.Service, jwt.ResponseTypeSingleton, append([]string{apiInfo}, shared.Services...)...)
	add(jwt.Service, jwt.ResponseTypeStream, shared.Repeated...)
	add(jwt.Stream, "", shared.Streams...)
	sort.Sort(exports) // as they are when they are read back
	sort.Sort(imports)
	return exports, imports
}

func (d Dir) saveAccount(c *jwt.AccountClaims, operator nkeys.KeyPair) error {
	text, err := c.Encode(operator)
	if err != nil {
		return failed(err)
	}
	return d.write(filepath.Join(accountsDir, c.Subject+".jwt"), []byte(text+"\n"))
}

// Accounts returns the public keys of all accounts.
func (d Dir) Accounts() ([]string, error) {
	files, err := filepath.Glob(d.Path(accountsDir, "*.jwt"))
	if err != nil {
		return nil, failed(err)
	}
	for n, f := range files {
		files[n] = strings.TrimSuffix(filepath.Base(f), ".jwt")
	}
	return files, nil
}

// AccountText returns the signed claims of an account.
func (d Dir) AccountText(key string) (string, error) {
	if strings.ContainsAny(key, "/.") {
		return "", events.Errorf(events.NotFound, "there is no account %q", key)
	}
	text, err := os.ReadFile(d.Path(accountsDir, key+".jwt"))
	if os.IsNotExist(err) {
		return "", events.Errorf(events.NotFound, "there is no account %q", key)
	}
	if err != nil {
		return "", failed(err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Account returns the claims of an account.
func (d Dir) Account(key string) (*jwt.AccountClaims, error) {
	text, err := d.AccountText(key)
	if err != nil {
		return nil, err
	}
	claims, err := jwt.DecodeAccountClaims(text)
	if err != nil {
		return nil, events.Errorf(events.Invalid, "%s: %w", d.Path(accountsDir, key+".jwt"), err)
	}
	return claims, nil
}

// signer returns the file with the key of the account that users of a role are in.
func signer(r access.Role) string {
	switch {
	case r == roleSystem:
		return systemKey
	case r.Outside():
		return clientsKey
	}
	return accountKey
}

// refuse adds the key of a user to the revocations of its account.
func (d Dir) refuse(u User) error {
	operator, err := d.key(operatorKey)
	if err != nil {
		return err
	}
	file := signer(u.Role)
	if file == clientsKey && !u.Outside {
		file = accountKey
	}
	account, err := d.key(file)
	if err != nil {
		return err
	}
	claims, err := d.Account(public(account))
	if err != nil {
		return err
	}
	claims.Revoke(u.Key)
	return d.saveAccount(claims, operator)
}
