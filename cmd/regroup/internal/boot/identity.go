package boot

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// Names under which processes connect, beside those of the services.
const (
	NameBroker = "broker" // regroup serve nats
	NameLocal  = "local"  // a broker and all services in one process
	NameInit   = "init"
	NameAgent  = "agent"
	NameClient = "cli"
)

// userOf returns the user in the directory of identities as which a process connects.
func userOf(name string) string {
	switch name {
	case NameBroker, NameInit:
		return string(access.RoleOperator)
	case NameLocal:
		return string(access.RoleAll)
	case NameClient:
		return string(access.RoleClient)
	}
	return name
}

// As returns the configuration of a process that connects under a name: what c.Auth has and flags
// do not say. NotFound if there is no such user.
func (c Config) As(name string) (Config, error) {
	if c.Auth == "" || c.Creds != "" {
		return c, nil
	}
	dir, err := identity.Open(c.Auth)
	if err != nil {
		return c, err
	}
	user := userOf(name)
	c.Creds = dir.Credentials(user)
	if _, err := os.Stat(c.Creds); err != nil {
		return c, errcode.Errorf(errcode.NotFound, "%s has no user %s: make it with regroup auth issue, or name a credentials file with --creds", c.Auth, user)
	}
	if dir.HasCertificates() {
		c.TLSCA = cmp.Or(c.TLSCA, dir.CA())
	}
	if name == events.ServiceDiscovery && c.System == (System{}) {
		c.System.Credentials = dir.Credentials(identity.SystemUser)
	}
	return c, nil
}

// AsNode is As for the agent of a node. Invalid if the credentials are of another node, or not of
// an agent.
func (c Config) AsNode(node string) (Config, error) {
	c, err := c.As(node)
	if err != nil || c.Creds == "" {
		return c, err
	}
	creds, err := os.ReadFile(c.Creds)
	if err != nil {
		return c, errcode.Errorf(errcode.Invalid, "credentials: %w", err)
	}
	if identity.Forbids(creds, events.HeartbeatSubject(ident.NodeID(node))) {
		return c, errcode.Errorf(errcode.Invalid, "%s is not of an agent of node %s: name its node with --node (REGROUP_AGENT_NODE), or give other credentials", c.Creds, node)
	}
	return c, nil
}

// CommandSource returns the CloudEvents source of which the credentials are, if they are of a
// submitter; otherwise "".
func (c Config) CommandSource() string {
	creds, err := os.ReadFile(c.Creds)
	if err != nil {
		return "" // there are none
	}
	s, ok := identity.Submitter(creds)
	if !ok {
		return ""
	}
	return s.Source()
}

// current returns Invalid if the credentials have expired: a broker would only refuse them, and not
// say why. What cannot be read the connection reports.
func (c Config) current() error {
	creds, err := os.ReadFile(c.Creds)
	if err != nil {
		return nil //nolint:nilerr // there may be none
	}
	if err := identity.Expired(creds, time.Now()); err != nil {
		return fmt.Errorf("%s: %w", c.Creds, err)
	}
	return nil
}

// identify adds to the options of a connection who this process is. Inside its own server it needs
// credentials only if that demands them.
func (c Config) identify(o *jetstream.ConnectOptions) {
	if o.Server == nil {
		o.Credentials, o.RootCA, o.ClientCert, o.ClientKey, o.Secret = c.Creds, c.TLSCA, c.TLSCert, c.TLSKey, c.Secret
	} else if o.Server.NeedsCredentials() {
		o.Credentials = c.Creds
	}
}
