package auth

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/contexts"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// delivery is the form in which the credentials of a user are given away. Without one they stay in
// the directory.
type delivery struct {
	out     string // path of a copy
	token   bool   // as a join token on stdout
	context string // name of a context of this user that uses them
}

func (to *delivery) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&to.out, "out", "", "write a copy of the credentials to `FILE`; - is stdout")
	cmd.Flags().BoolVar(&to.token, "token", false, "print a join token, with the address of --server: one line for regroup agent --join or context add --join")
	cmd.Flags().StringVar(&to.context, "save-context", "", "add or replace the context `NAME` of this user, which uses them to reach --server")
}

// open opens the directory, and checks what a delivery needs before anything is made.
func (a *call) open(to delivery) (identity.Dir, error) {
	d, err := identity.Open(a.path())
	switch {
	case err != nil || !to.token && to.context == "":
		return d, err
	case to.token && (to.out != "" || to.context != ""), to.context != "" && to.out == "-":
		return d, errcode.Errorf(errcode.Invalid, "--token, --out and --save-context: a token goes elsewhere, and a context needs a file: give one of them")
	}
	if to.context != "" {
		f, err := contexts.Load(a.env.Getenv)
		if err == nil {
			err = f.Put(to.context, contexts.Settings{})
		}
		if err != nil {
			return d, fmt.Errorf("--save-context: %w", err)
		}
	}
	if err := d.CheckServers(a.config.Server); err != nil {
		return d, errcode.Errorf(errcode.Invalid, "--%w", err)
	}
	return d, nil
}

// handOver gives the credentials away, and says where they are.
func (a *call) handOver(d identity.Dir, u identity.User, to delivery) error {
	until := "until it is revoked"
	if !u.Expires.IsZero() {
		until = "until " + u.Expires.Local().Format(time.DateTime)
	}
	if to.token {
		text, err := d.JoinToken(u.Name, a.config.Server)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(a.env.Out, text); err != nil {
			return err
		}
		use := "regroup context add NAME --join -"
		if u.Role.OfNode() {
			use = "regroup agent --join -"
		}
		a.say("%s, role %s, is valid %s; who has this line is %s; on its machine: %s", u.Name, u.Role, until, u.Name, use)
		return nil
	}
	at := d.Credentials(u.Name)
	if to.out != "" {
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if to.out == "-" {
			_, err = a.env.Out.Write(text)
		} else {
			err = identity.WriteFile(to.out, text)
		}
		if err != nil {
			return err
		}
		at = to.out
	}
	a.say("%s, role %s, is valid %s: %s", u.Name, u.Role, until, at)
	if to.context != "" {
		return a.saveContext(d, at, to.context)
	}
	return nil
}

// saveContext makes a context of this user that uses a credentials file.
func (a *call) saveContext(d identity.Dir, creds, name string) error {
	f, err := contexts.Load(a.env.Getenv)
	if err != nil {
		return err
	}
	s := contexts.Settings{Server: a.config.Server, Creds: creds}
	if d.HasCertificates() {
		s.TLSCA = d.CA()
	}
	if s, err = s.Absolute(); err != nil {
		return err
	}
	if err := f.Put(name, s); err != nil {
		return err
	}
	if err := f.Save(); err != nil {
		return err
	}
	a.say("context %s is kept: regroup ls --context %[1]s, or regroup context select %[1]s", name)
	return nil
}
