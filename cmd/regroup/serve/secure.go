package serve

import (
	"cmp"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/server"
)

// secure decides who may connect to the broker of a store, and returns what its other users read
// in the store: the users of a directory of identities, or those who know a secret. The file with
// the secret is the user's alone, so that other users of the machine are refused.
func (l *Local) secure(c *boot.Config, kind string, o *server.Options) (owner, error) {
	at := owner{Kind: kind, PID: os.Getpid()}
	if kind == kindRead && c.Auth == "" {
		c.Auth = filepath.Join(c.StateDir, identity.DefaultDir) // perhaps it was used with these
		if _, err := identity.Open(c.Auth); err != nil {
			c.Auth = ""
		}
	}
	dir, used, err := identitiesOf(*c, kind)
	switch {
	case err != nil:
		return at, err
	case used:
		o.Auth, o.System = c.Auth, server.System{}
		if *c, err = c.As(boot.NameLocal); err != nil {
			return at, err
		}
		if at.Creds, err = filepath.Abs(c.Creds); err != nil {
			return at, err
		}
		if dir.HasCertificates() {
			at.TLSCA, err = filepath.Abs(dir.CA())
		}
		return at, err
	}
	c.Auth = "" // of another server
	switch {
	case o.Listen == "": // nobody can connect
	case kind == kindNodes: // the others know this one, or none
		l.Secret = c.Secret
	default:
		l.Secret = cmp.Or(c.Secret, rand.Text())
	}
	o.Secret, at.Secret = l.Secret, l.Secret
	if o.Cluster.Listen != "" {
		o.Cluster.Password = c.Secret // not a random one: the other brokers do not know it
	}
	return at, nil
}

// identitiesOf returns the directory of identities that a store is served with. A run has its
// server for itself, whatever the directory says about others.
func identitiesOf(c boot.Config, kind string) (identity.Dir, bool, error) {
	if c.Auth == "" || (kind != kindUp && kind != kindRead) {
		return identity.Dir{}, false, nil
	}
	dir, err := identity.Open(c.Auth)
	if err != nil || kind == kindUp {
		return dir, true, err
	}
	b, err := dir.Broker()
	if err != nil {
		return dir, true, err
	}
	_, err = os.Stat(filepath.Join(c.StateDir, "nats", "jetstream", b.Account))
	return dir, err == nil, nil // else the store was made without the directory
}

// openness says what anybody on the network can do, and what the network is needed for but closed.
func openness(c boot.Config, o server.Options) []string {
	var all []string
	if c.Auth != "" {
		return nil
	}
	if c.Secret == "" && !loopback(o.Listen) {
		all = append(all, "other machines are not admitted: give all of them the same REGROUP_SECRET, or credentials (regroup auth)")
	}
	if c.Secret == "" && o.Cluster.Listen != "" && !loopback(o.Cluster.Listen) {
		all = append(all, "any broker on the network may join at "+o.Cluster.Listen+": give all machines the same REGROUP_SECRET, or --auth")
	}
	return all
}

func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || (ip != nil && ip.IsLoopback()))
}
