package identity

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
)

// Names of the accounts, beside those of package access.
const (
	accountStreams = "regroup" // the services, the agents and the streams
	accountSystem  = "system"
)

// keyOf returns the file with the key of an account of those outside.
func keyOf(account string) string { return account + ".nk" }

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

// connectAccounts makes the accounts of those outside unless they exist, and lets them import from
// the account of the streams what package access says. They are written only if that has changed,
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
	shared, err := access.ImportsOf(access.OutsideAccounts()...)
	if err != nil {
		return err
	}
	var exporting, importing []*jwt.AccountClaims // in this order: nothing can be imported that is not exported
	if all := exports(shared); !reflect.DeepEqual(from.Exports, all) {
		from.Exports = all
		exporting = append(exporting, from)
	}
	outside := map[string]*jwt.AccountClaims{}
	for _, name := range access.OutsideAccounts() {
		if outside[name], err = d.outsideAccount(name); err != nil {
			return err
		}
	}
	var agents []string
	for _, name := range access.AgentAccounts() {
		agents = append(agents, outside[name].Subject)
		if all := exports(access.Imports{Streams: shared.Signals}); !reflect.DeepEqual(outside[name].Exports, all) {
			outside[name].Exports = all
			exporting = append(exporting, outside[name])
		}
	}
	for _, name := range access.OutsideAccounts() {
		shared, err := access.ImportsOf(name)
		if err != nil {
			return err
		}
		to := outside[name]
		if most := connections(name); to.Limits.Conn != most {
			to.Limits.Conn = most
			importing = append(importing, to)
		}
		if all := imports(shared, from.Subject, agents, to.Subject); !reflect.DeepEqual(inOrder(to.Imports), all) {
			to.Imports = all
			if !slices.Contains(importing, to) {
				importing = append(importing, to)
			}
		}
	}
	changed := append(exporting, importing...)
	if len(changed) == 0 {
		return nil
	}
	operator, err := d.key(operatorKey)
	if err != nil {
		return err
	}
	for _, claims := range changed {
		if err := d.saveAccount(claims, operator); err != nil {
			return err
		}
	}
	return nil
}

// outsideAccount returns the claims of an account of those outside, with a new key if it has none.
func (d Dir) outsideAccount(name string) (*jwt.AccountClaims, error) {
	pair, err := d.key(keyOf(name))
	if errcode.Of(err) == errcode.NotFound {
		pair, err = d.newKey(keyOf(name), nkeys.CreateAccount)
	}
	if err != nil {
		return nil, err
	}
	claims, err := d.Account(public(pair))
	if errcode.Of(err) == errcode.NotFound {
		claims, err = jwt.NewAccountClaims(public(pair)), nil
		claims.Name = name
	}
	return claims, err
}

// apiInfo is imported so that nats-server sees whose JetStream the account uses: without it each
// request is answered a second time, that the account has none (jetstream.go,
// enableJetStreamInfoServiceImportOnly). Nobody may publish to it.
const apiInfo = "$JS.API.INFO"

// exports returns what an account shares. The broker remembers where the answer to
// a request goes until it comes. If there may be many it does so for two minutes, which is more
// than any request for the next messages of a consumer is open.
func exports(shared access.Imports) (all jwt.Exports) {
	if len(shared.Services) > 0 {
		all.Add(&jwt.Export{Name: apiInfo, Subject: apiInfo, Type: jwt.Service, ResponseType: jwt.ResponseTypeSingleton})
	}
	each(shared, func(subject string, kind jwt.ExportType, answers jwt.ResponseType) {
		all.Add(&jwt.Export{Name: subject, Subject: jwt.Subject(subject), Type: kind, ResponseType: answers})
	})
	sort.Sort(all) // as they are when they are read back
	return all
}

// imports returns what an account takes from that of the streams, and from those of agents but
// itself.
func imports(shared access.Imports, streams string, agents []string, itself string) (all jwt.Imports) {
	all.Add(&jwt.Import{Name: apiInfo, Subject: apiInfo, Account: streams, Type: jwt.Service})
	for _, a := range agents {
		for _, s := range shared.Signals {
			if a != itself {
				all.Add(&jwt.Import{Name: s, Subject: jwt.Subject(s), Account: a, Type: jwt.Stream})
			}
		}
	}
	each(shared, func(subject string, kind jwt.ExportType, _ jwt.ResponseType) {
		// The account that counts consumers receives the name of each maker.
		share := kind == jwt.Service && access.Counted(subject)
		all.Add(&jwt.Import{Name: subject, Subject: jwt.Subject(subject), Account: streams, Type: kind, Share: share})
	})
	return inOrder(all)
}

// connections returns how many connections an account may have. Of agents there are as many as
// nodes.
func connections(account string) int64 {
	if slices.Contains(access.AgentAccounts(), account) {
		return jwt.NoLimit
	}
	return access.ConnectionsOfAccount
}

// inOrder sorts imports: several may be of one subject.
func inOrder(all jwt.Imports) jwt.Imports {
	slices.SortFunc(all, func(a, b *jwt.Import) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Account, b.Account))
	})
	return all
}

func each(shared access.Imports, fn func(subject string, kind jwt.ExportType, answers jwt.ResponseType)) {
	for _, s := range widest(shared.Services) {
		fn(s, jwt.Service, jwt.ResponseTypeSingleton)
	}
	for _, s := range widest(shared.Repeated) {
		fn(s, jwt.Service, jwt.ResponseTypeStream)
	}
	for _, s := range widest(shared.Streams) {
		fn(s, jwt.Stream, "")
	}
}

// widest returns the patterns that no other one includes: the broker refuses claims that have both.
func widest(patterns []string) (all []string) {
	for _, p := range patterns {
		if !slices.ContainsFunc(patterns, func(q string) bool { return q != p && jwt.Subject(p).IsContainedIn(jwt.Subject(q)) }) {
			all = append(all, p)
		}
	}
	return all
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

// AccountFile returns the path of the claims of an account.
func (d Dir) AccountFile(key string) string { return d.Path(accountsDir, key+".jwt") }

// AccountText returns the signed claims of an account.
func (d Dir) AccountText(key string) (string, error) {
	if strings.ContainsAny(key, "/.") {
		return "", errcode.Errorf(errcode.NotFound, "there is no account %q", key)
	}
	text, err := os.ReadFile(d.AccountFile(key))
	if os.IsNotExist(err) {
		return "", errcode.Errorf(errcode.NotFound, "there is no account %q", key)
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
		return nil, errcode.Errorf(errcode.Invalid, "%s: %w", d.AccountFile(key), err)
	}
	return claims, nil
}

// signer returns the file with the key of the account that users of a role are in.
func signer(r access.Role) string {
	switch {
	case r == roleSystem:
		return systemKey
	case r.Outside():
		return keyOf(r.Account())
	}
	return accountKey
}

// refuse adds the key of a user to the revocations of its account.
func (d Dir) refuse(u User) error {
	operator, err := d.key(operatorKey)
	if err != nil {
		return err
	}
	account, err := d.key(signer(u.Role))
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
