package auth

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// delivery is the form in which the credentials of a user are given away. Without one they stay in
// the directory.
type delivery struct {
	out   string // path of a copy
	token bool   // as a join token on stdout
}

func (to *delivery) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&to.out, "out", "", "write a copy of the credentials to `FILE`; - is stdout")
	cmd.Flags().BoolVar(&to.token, "token", false, "print a join token, with the address of --server: one line for regroup agent --join")
}

// open opens the directory, and checks what a delivery needs before anything is made.
func (a *call) open(to delivery) (identity.Dir, error) {
	d, err := identity.Open(a.path())
	switch {
	case err != nil || !to.token:
		return d, err
	case to.out != "":
		return d, events.Errorf(events.Invalid, "--token and --out: give one of the two")
	}
	if err := d.CheckServers(a.config.Server); err != nil {
		return d, events.Errorf(events.Invalid, "--%w", err)
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
		a.say("%s, role %s, is valid %s; who has this line is %[1]s: regroup agent --join @FILE, or - for standard input", u.Name, u.Role, until)
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
	return nil
}
