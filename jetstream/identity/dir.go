package identity

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/durable"
)

// Names in the directory.
const (
	operatorJWT = "operator.jwt"
	operatorKey = "operator.nk" // signs accounts
	accountKey  = "account.nk"  // signs users of the account that has the streams
	systemKey   = "system.nk"   // signs users of the system account
	accountsDir = "accounts"    // claims of accounts, by their public key
	usersDir    = "users"       // credentials, by the name of the user
	usersFile   = "users.json"  // all users that were ever issued
	routesFile  = "cluster.password"
	lockFile    = "lock"
)

// DefaultDir is the name of the directory in a state folder.
const DefaultDir = "auth"

// SystemUser is the user of the system account, with which discovery hears of closed connections.
const SystemUser = "system"

// roleSystem is the role of SystemUser in the list of users.
const roleSystem access.Role = "system"

// User is one row of the list of users.
type User struct {
	Name    string       `json:"name"`
	Role    access.Role  `json:"role"`
	Node    ident.NodeID `json:"node,omitempty"`
	RunAs   string       `json:"user,omitempty"` // of a submitter: as whom its jobs run
	Key     string       `json:"key"`            // public
	Issued  time.Time    `json:"issued"`
	Expires time.Time    `json:"expires,omitzero"`  // zero = never
	Revoked time.Time    `json:"revoked,omitzero"`  // zero = valid
	Token   bool         `json:"token,omitempty"`   // it was given away as a join token
	Outside bool         `json:"outside,omitempty"` // it is outside the account of the streams
}

// Valid reports whether the brokers admit the user at a time.
func (u User) Valid(now time.Time) bool {
	return u.Revoked.IsZero() && (u.Expires.IsZero() || now.Before(u.Expires))
}

// Dir is an open directory. Its methods are safe for use by several processes at once.
type Dir struct{ path string }

// Path returns the path of a file of the directory.
func (d Dir) Path(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// Credentials returns the path of a user's credentials file.
func (d Dir) Credentials(user string) string { return d.Path(usersDir, user+".creds") }

// Open opens a directory; NotFound if Init has not made it.
func Open(path string) (Dir, error) {
	d := Dir{path}
	if _, err := os.Stat(d.Path(operatorJWT)); err != nil {
		return d, errcode.Errorf(errcode.NotFound, "%s is no directory of identities: make one with: regroup auth init", path)
	}
	return d, nil
}

// Init makes a directory with the users that every cluster needs: the services, the operator, one
// for regroup up, and the one of the system account. hosts are the names and addresses under which
// brokers are reached, for their certificate. Conflict if the directory is in use.
func Init(path string, hosts []string) (Dir, error) {
	d := Dir{path}
	if _, err := os.Stat(d.Path(operatorJWT)); err == nil {
		return d, errcode.Errorf(errcode.Conflict, "%s has identities already: issue, revoke or rotate them, or give another --auth", path)
	}
	for _, dir := range []string{"", accountsDir, usersDir, tlsDir} {
		if err := os.MkdirAll(d.Path(dir), 0o700); err != nil {
			return d, failed(err)
		}
	}
	if err := d.initAccounts(); err != nil {
		return d, err
	}
	if err := d.write(routesFile, []byte(rand.Text()+"\n")); err != nil {
		return d, err
	}
	if err := d.initCertificates(hosts); err != nil {
		return d, err
	}
	users := []access.Identity{{Role: access.RoleOperator, Name: string(access.RoleOperator)}, {Role: access.RoleAll, Name: string(access.RoleAll)}, {Role: access.RoleGateway, Name: string(access.RoleGateway)}}
	for _, s := range events.ServiceNames() {
		users = append(users, access.Identity{Role: access.Role(s), Name: s})
	}
	for _, u := range users {
		if _, err := d.Issue(u, 0); err != nil {
			return d, err
		}
	}
	if err := d.change(func(all []User) ([]User, error) { return d.issueSystem(all) }); err != nil {
		return d, err
	}
	return d, nil
}

// newKey makes a key pair and keeps its seed.
func (d Dir) newKey(file string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	pair, err := create()
	if err != nil {
		return nil, failed(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, failed(err)
	}
	return pair, d.write(file, append(seed, '\n'))
}

// key reads a key pair; NotFound where it is not kept, as on a broker.
func (d Dir) key(file string) (nkeys.KeyPair, error) {
	seed, err := os.ReadFile(d.Path(file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errcode.Errorf(errcode.NotFound, "%s is not here: use the directory in which regroup auth init was run", d.Path(file))
	}
	if err != nil {
		return nil, failed(err)
	}
	pair, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "%s: %w", d.Path(file), err)
	}
	return pair, nil
}

// public returns the public key of a pair that was just made or read, and therefore has one.
func public(pair nkeys.KeyPair) string {
	key, _ := pair.PublicKey()
	return key
}

// write replaces a file at once, readable by its owner alone.
func (d Dir) write(name string, data []byte) error { return WriteFile(d.Path(name), data) }

// WriteFile replaces a file at once, readable by its owner alone.
func WriteFile(path string, data []byte) error {
	if err := durable.WriteFile(path, data); err != nil {
		return failed(err)
	}
	return nil
}

// Users returns all users in the order of their issue.
func (d Dir) Users() ([]User, error) {
	text, err := os.ReadFile(d.Path(usersFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed(err)
	}
	var all []User
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "%s: %w", d.Path(usersFile), err)
	}
	return all, nil
}

// change replaces the list of users by what fn makes of it. Other processes wait.
func (d Dir) change(fn func(all []User) ([]User, error)) error {
	lock, err := os.OpenFile(d.Path(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return failed(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return failed(err)
	}
	all, err := d.Users()
	if err != nil {
		return err
	}
	if all, err = fn(all); err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return failed(err)
	}
	return d.write(usersFile, append(text, '\n'))
}

func failed(err error) error { return errcode.Errorf(errcode.Internal, "identities: %w", err) }
