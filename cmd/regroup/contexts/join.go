package contexts

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// join makes a context use what a join token has. The token and the files that are made from it are
// in a folder of the context, which it names relative to the settings file.
func join(cmd *cobra.Command, env command.Env, f *File, name, setting string, s Settings) error {
	if s.Creds != "" || s.TLSCA != "" || s.Auth != "" {
		return errcode.Errorf(errcode.Invalid, "--join: the token has credentials and an authority: give no --creds, --tlsca and --auth")
	}
	j, text, err := boot.ReadToken(setting, env.In)
	switch {
	case err != nil:
		return errcode.Errorf(errcode.Of(err), "--join: %w", err)
	case j.Role == access.RoleAgent:
		return errcode.Errorf(errcode.Invalid, "--join: the token is of the agent of %s: it is for regroup agent --join", j.Node)
	}
	if err := identity.Expired(j.Credentials, env.Now()); err != nil {
		return errcode.Errorf(errcode.Of(err), "--join: %w", err)
	}
	kept, err := boot.KeepToken(f.Folder(name), text)
	if err != nil {
		return err
	}
	if !cmd.Flag("server").Changed {
		s.Server = kept.Servers
	}
	for path, field := range map[string]*string{kept.Creds: &s.Creds, kept.TLSCA: &s.TLSCA} {
		if path == "" {
			continue
		}
		if *field, err = filepath.Rel(f.Dir(), path); err != nil {
			return errcode.Errorf(errcode.Internal, "settings: %w", err)
		}
	}
	return f.Put(name, s)
}
