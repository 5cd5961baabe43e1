package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// Join is what a process needs to take part from a machine that has no other file of the cluster.
type Join struct {
	User        string // its name
	Role        access.Role
	Node        ident.NodeID // of an agent; AnyNode = of any
	Servers     string       // NATS URLs, separated by commas
	Authority   []byte       // certificates to verify the servers with, PEM; empty = the system's
	Credentials []byte       // the content of a NATS credentials file
	Expires     time.Time    // zero = never
}

// JoinToken returns the token of a user that is valid now, for a machine that reaches the brokers
// at these URLs, and notes in the list of users that it has one. It checks the URLs first.
func (d Dir) JoinToken(name, servers string) (string, error) {
	if err := d.CheckServers(servers); err != nil {
		return "", err
	}
	var text string
	err := d.change(func(all []User) ([]User, error) {
		u, err := valid(all, name)
		if err != nil {
			return nil, err
		}
		j := Join{User: u.Name, Role: u.Role, Node: u.Node, Servers: servers, Expires: u.Expires}
		if j.Credentials, err = os.ReadFile(d.Credentials(name)); err != nil {
			return nil, failed(err)
		}
		if d.HasCertificates() {
			if j.Authority, err = os.ReadFile(d.CA()); err != nil {
				return nil, failed(err)
			}
		}
		u.Token = true
		text, err = j.token()
		return all, err
	})
	return text, err
}

// CheckServers validates the URLs of a token: Invalid if one is no URL of a broker, or none that
// the brokers' certificate is valid for.
func (d Dir) CheckServers(servers string) error {
	var leaf *x509.Certificate
	names := "broker"
	if d.HasCertificates() {
		pair, err := tls.LoadX509KeyPair(d.Path(tlsDir, serverName+".pem"), d.Path(tlsDir, serverName+".pem"))
		if err != nil {
			return failed(err)
		}
		leaf = pair.Leaf
		all := leaf.DNSNames
		for _, ip := range leaf.IPAddresses {
			all = append(all, ip.String())
		}
		names = strings.Join(all, ", ")
	}
	for one := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case servers == "":
			return errcode.Errorf(errcode.Invalid, "server: write how the machine reaches the brokers, like nats://HOST:4222; their certificate is for %s", names)
		case err != nil || u.Hostname() == "" || (u.Scheme != "nats" && u.Scheme != "tls"):
			return errcode.Errorf(errcode.Invalid, "server: is no URL of a broker: write nats://HOST:4222")
		case u.User != nil:
			return errcode.Errorf(errcode.Invalid, "server: has a user, and a token brings one: write nats://%s", u.Host)
		case leaf != nil && leaf.VerifyHostname(u.Hostname()) != nil:
			return errcode.Errorf(errcode.Invalid, "server: the brokers' certificate is for %s, not for %s: make another with regroup auth rotate --certificates --host %[2]s", names, u.Hostname())
		}
	}
	return nil
}

// Expired returns Invalid if credentials are no longer valid at a time, by the clock of this
// machine. Those of a broker that keeps users elsewhere have no end here.
func Expired(creds []byte, now time.Time) error {
	claims, ok := claimsOf(creds)
	if !ok || claims.Expires == 0 {
		return nil
	}
	if at := time.Unix(claims.Expires, 0); !now.Before(at) {
		return errcode.Errorf(errcode.Invalid, "the credentials of %s have expired at %s, and it is %s: make others with regroup auth issue, or correct the clock of this machine",
			claims.Name, at.Local().Format(time.DateTime), now.Local().Format(time.DateTime))
	}
	return nil
}
