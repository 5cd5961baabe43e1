package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/shares"
)

// SystemUser is the default name of the system account's user.
const SystemUser = "regroup-system"

// SecretUser is the name of those who know the secret of a server, or of anybody.
const SecretUser = "regroup"

// insideUser is the name of connections inside the process.
const insideUser = "regroup-inside"

// askEveryone is a configuration without which nats-server admits anybody if its accounts are the
// system account and the global one (server.go, configureAccounts). TestASecretIsAskedFor shows it.
const askEveryone = "authorization {}"

// User is how a connection identifies itself without credentials: by name and password, or token.
type User struct{ Name, Password, Token string }

// admit decides who may connect to the server. A directory of identities or the configuration file
// says so; otherwise those who know the secret, or anybody. It sets what depends on it.
func (s *Server) admit(o Options, opts *server.Options) error {
	configured := len(opts.Accounts)+len(opts.Users)+len(opts.Nkeys)+len(opts.TrustedOperators) > 0 || opts.Username != "" || opts.Authorization != "" ||
		opts.SystemAccount != "" || opts.NoSystemAccount
	switch {
	case o.Auth != "" && (o.ConfigFile != "" || o.Secret != ""):
		return errcode.Errorf(errcode.Invalid, "NATS server: give a directory of identities, or a configuration file, or a secret, not two of them")
	case o.Auth != "":
		return s.identities(o, opts)
	case configured && o.Secret != "":
		return errcode.Errorf(errcode.Invalid, "NATS server: %s says who may connect: give no secret beside it", o.ConfigFile)
	case configured:
		s.system = o.System
		return s.enter(o, opts)
	}
	s.system = System{User: cmp.Or(o.System.User, SystemUser), Password: cmp.Or(o.System.Password, rand.Text())}
	s.inside = User{Name: SecretUser, Password: cmp.Or(o.Secret, rand.Text())}
	opts.MaxControlLine = connectBytes // who shows credentials of another cluster is refused, and told so
	account := server.NewAccount(server.DEFAULT_SYSTEM_ACCOUNT)
	opts.Accounts = []*server.Account{account}
	opts.Users = []*server.User{
		{Username: s.system.User, Password: s.system.Password, Account: account},
		{Username: s.inside.Name, Password: s.inside.Password},
	}
	if o.Secret == "" {
		opts.NoAuthUser = s.inside.Name
	} else if err := opts.ProcessConfigString(askEveryone); err != nil {
		return errcode.Errorf(errcode.Internal, "NATS server: %w", err)
	}
	return nil
}

// enter adds a user for connections inside this process to a configuration that has users. If it
// cannot decide in which account, these connections need credentials of their own.
func (s *Server) enter(o Options, opts *server.Options) error {
	if token := opts.Authorization; token != "" {
		if strings.HasPrefix(token, "$2") {
			return errcode.Errorf(errcode.Invalid, "NATS server: %s: authorization.token is a hash, with which this process cannot connect to its own server: give user and password instead", o.ConfigFile)
		}
		s.inside = User{Token: token}
		return nil
	}
	if opts.Username != "" {
		opts.Users = append(opts.Users, &server.User{Username: opts.Username, Password: opts.Password})
		opts.Username, opts.Password = "", ""
	}
	account, ok := accountOf(opts)
	if !ok || len(opts.TrustedOperators) > 0 || opts.AuthCallout != nil {
		s.closed = true
		return nil
	}
	if account != nil {
		s.store = account.Name
	}
	if len(opts.Users)+len(opts.Nkeys) == 0 {
		return nil // nobody needs a name
	}
	s.inside = User{Name: insideUser, Password: rand.Text()}
	opts.Users = append(opts.Users, &server.User{Username: s.inside.Name, Password: s.inside.Password, Account: account})
	return nil
}

// accountOf returns the account of all users that are not in the system account, nil = the global
// one; false if they are in several.
func accountOf(opts *server.Options) (*server.Account, bool) {
	var all []*server.Account
	add := func(a *server.Account) {
		if a != nil && a.Name == cmp.Or(opts.SystemAccount, server.DEFAULT_SYSTEM_ACCOUNT) {
			return
		}
		for _, known := range all {
			if known == a || (known != nil && a != nil && known.Name == a.Name) {
				return
			}
		}
		all = append(all, a)
	}
	for _, u := range opts.Users {
		if add(u.Account); u.Username == opts.NoAuthUser && opts.NoAuthUser != "" {
			return u.Account, true // where anybody is
		}
	}
	for _, u := range opts.Nkeys {
		add(u.Account)
	}
	switch len(all) {
	case 0:
		return nil, true
	case 1:
		return all[0], true
	}
	return nil, false
}

// identities admits the users of a directory of identities.
func (s *Server) identities(o Options, opts *server.Options) error {
	dir, err := identity.Open(o.Auth)
	if err != nil {
		return err
	}
	b, err := dir.Broker()
	if err != nil {
		return err
	}
	opts.TrustedOperators, opts.SystemAccount = []*jwt.OperatorClaims{b.Operator}, b.Operator.SystemAccount
	opts.AccountResolver = &resolver{dir: dir, operator: b.Operator, applied: map[string]appliedClaims{}, lockOut: cmp.Or(o.LockOut, access.LockedOutFor), locked: map[shares.User]time.Time{}}
	s.store, s.closed = b.Account, true
	opts.MaxControlLine = connectBytes
	if _, err := os.Stat(dir.Credentials(identity.SystemUser)); err == nil {
		s.system = System{Credentials: dir.Credentials(identity.SystemUser)}
	}
	opts.Cluster.Username, opts.Cluster.Password = identity.SystemUser, b.Password
	for _, r := range opts.Routes {
		r.User = url.UserPassword(opts.Cluster.Username, opts.Cluster.Password)
	}
	if !dir.HasCertificates() {
		return nil
	}
	if opts.TLSConfig, err = dir.ServerTLS(); err != nil {
		return err
	}
	opts.TLS, opts.TLSTimeout = true, tlsLimit.Seconds()
	if opts.Cluster.Port == 0 {
		return nil
	}
	opts.Cluster.TLSConfig, err = dir.RouteTLS()
	opts.Cluster.TLSTimeout = tlsLimit.Seconds()
	return err
}

// connectBytes limits the first line of a client, which has its claims with all permissions: those
// of a service are 8 KiB long, and the server's default is 4.
const connectBytes = 64 << 10

// tlsLimit limits a TLS handshake; it is long because many agents may connect at once.
const tlsLimit = 10 * time.Second

// resolver is the server's access to the accounts of a directory of identities.
type resolver struct {
	dir      identity.Dir
	operator *jwt.OperatorClaims
	mu       sync.Mutex
	applied  map[string]appliedClaims // of the accounts that the server uses, by their public keys
	lockOut  time.Duration
	locked   map[shares.User]time.Time // until when; of the goroutine that follows the directory
}

// appliedClaims are the claims of an account as the server has them.
type appliedClaims struct {
	text string
	file durable.Version // that had them
}

// Fetch implements server.AccountResolver.
func (r *resolver) Fetch(name string) (string, error) {
	file := durable.VersionOf(r.dir.AccountFile(name)) // before it is read: it may change meanwhile
	text, err := r.dir.AccountText(name)
	if err == nil {
		r.keep(name, appliedClaims{text, file})
	}
	return text, err
}

func (r *resolver) keep(name string, c appliedClaims) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied[name] = c
}

// inUse returns what the server has.
func (r *resolver) inUse() map[string]appliedClaims {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.applied)
}

// Store implements server.AccountResolver: files change only by package identity.
func (r *resolver) Store(string, string) error {
	return errcode.Errorf(errcode.Invalid, "accounts change only in their directory")
}

// IsReadOnly implements server.AccountResolver.
func (r *resolver) IsReadOnly() bool { return true }

// Start implements server.AccountResolver.
func (r *resolver) Start(*server.Server) error { return nil }

// IsTrackingUpdate implements server.AccountResolver.
func (r *resolver) IsTrackingUpdate() bool { return true }

// Reload implements server.AccountResolver.
func (r *resolver) Reload() error { return nil }

// Close implements server.AccountResolver.
func (r *resolver) Close() {}

// followEvery is how often a server looks for changes of its directory of identities.
const followEvery = 500 * time.Millisecond

// follow applies changed accounts until the server is shut down: the server closes the connections
// of users that are revoked.
func (s *Server) follow(opts *server.Options, log *slog.Logger) {
	r, ok := opts.AccountResolver.(*resolver)
	if !ok {
		return
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.stopFollowing = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		var reason string
		var connections shares.Connections
		_ = wait.Every(ctx, followEvery, func(now time.Time) error {
			for key := range r.inUse() {
				connections.CloseExcess(s.ns, key, log)
			}
			r.lock(s.ns, log, connections.Fast(s.ns, now), now)
			switch err := r.apply(s.ns, log); {
			case err == nil:
				reason = ""
			case err.Error() != reason:
				reason = err.Error()
				log.Error("the identities cannot be read, the old ones hold", "reason", reason)
			}
			return nil
		})
	}()
}

// apply passes changed claims to the server. It asks for those of other accounts once it needs
// them.
func (r *resolver) apply(ns *server.Server, log *slog.Logger) error {
	var all []error
	used := r.inUse()
	for _, key := range slices.Sorted(maps.Keys(used)) {
		before, file := used[key], durable.VersionOf(r.dir.AccountFile(key))
		if before.file.Same(file) {
			continue
		}
		text, err := r.dir.AccountText(key)
		if err == nil && text != before.text {
			var claims *jwt.AccountClaims
			if claims, err = r.update(ns, key); err == nil {
				log.Info("identities have changed", "account", claims.Name, "revoked", len(claims.Revocations))
			}
		}
		if err == nil {
			r.keep(key, appliedClaims{text, file})
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// update passes the claims of an account to the server, and returns them.
func (r *resolver) update(ns *server.Server, key string) (*jwt.AccountClaims, error) {
	claims, err := r.dir.Account(key)
	if err != nil {
		return nil, err
	}
	if claims.Subject != key || !r.operator.DidSign(claims) {
		return nil, errcode.Errorf(errcode.Invalid, "the claims of account %s are not signed by the operator", key)
	}
	account, err := ns.LookupAccount(key)
	if err != nil {
		return nil, errcode.Errorf(errcode.Internal, "account %s: %w", key, err)
	}
	for u := range r.locked {
		if u.Account == key {
			claims.Revoke(u.Key)
		}
	}
	ns.UpdateAccountClaims(account, claims)
	return claims, nil
}

// lock keeps users out for a while who publish more than their share: to this server they are
// revoked, so that it closes their connections and makes no more. Those whose time is over may
// connect again.
func (r *resolver) lock(ns *server.Server, log *slog.Logger, fast []shares.User, now time.Time) {
	changed := map[string]bool{}
	for _, u := range fast {
		log.Warn("an identity publishes more than its share: it is locked out", "user", u.Name, "for", r.lockOut.String())
		r.locked[u], changed[u.Account] = now.Add(r.lockOut), true
	}
	for u, until := range r.locked {
		if now.After(until) {
			delete(r.locked, u)
			changed[u.Account] = true
		}
	}
	for key := range changed {
		if _, err := r.update(ns, key); err != nil {
			log.Error("who publishes more than its share cannot be locked out", "account", key, "reason", err.Error())
		}
	}
}

// NeedsCredentials reports whether connections inside the process need credentials of their own.
func (s *Server) NeedsCredentials() bool { return s.closed }

// Inside returns who connections inside the process are, unless they need credentials.
func (s *Server) Inside() User { return s.inside }

// System returns the access to the system account.
func (s *Server) System() System { return s.system }

// System configures access to the system account, where the servers report closed connections. The
// zero value is no access.
type System struct {
	URL         string // empty = that of the other connection
	User        string // of the system account
	Password    string
	Credentials string // path of a NATS credentials file, instead of user and password
}

// Given reports whether there is access.
func (s System) Given() bool { return s.User != "" || s.Credentials != "" }
