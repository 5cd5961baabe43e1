package auth

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
	"github.com/regroup-io/regroup/services/gateway/tokens"
)

// token is regroup auth token.
func (a *call) token() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Decide who may ask a gateway, and for what",
		Long: "Keeps tokens for HTTP in a file of hashes, which gateways with the same --tokens read again when it changes. " + rights(),
		Example: command.Examples("regroup auth token issue ada --role submitter --user ada --expires 720h", "regroup auth token ls",
			"regroup auth token revoke ada"),
	}
	var file string
	cmd.PersistentFlags().StringVar(&file, "tokens", "", "`FILE` of tokens (REGROUP_GATEWAY_TOKENS); default: tokens.json in the state folder")
	open := func() (*tokens.File, error) {
		w, err := serve.LoadGateway()
		return tokens.Open(cmp.Or(file, w.Tokens, filepath.Join(a.config.StateDir, serve.DefaultTokens))), err
	}
	cmd.AddCommand(a.issueToken(open), a.listTokens(open), a.revokeToken(open))
	return cmd
}

func rights() string {
	return fmt.Sprintf("A %s reads; a %s also submits jobs, and changes those that it has submitted; an %s may do everything.", tokens.Viewer, tokens.Submitter, tokens.Operator)
}

func (a *call) issueToken(open func() (*tokens.File, error)) *cobra.Command {
	var role, user string
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "issue NAME", Short: "Make a token and print it", Args: command.Exactly("NAME"),
		Long:    "Prints a new token, which is kept nowhere else. " + rights() + " With --user all jobs that are submitted with it run as this user of the nodes.",
		Example: command.Examples("regroup auth token issue grafana", "regroup auth token issue ada --role submitter --user ada --expires 720h"),
	}
	cmd.Flags().StringVar(&role, "role", string(tokens.Viewer), "viewer, submitter or operator")
	cmd.Flags().StringVar(&user, "user", "", "user of the nodes as whom its jobs run; default: as they say")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is valid, like 24h; default: until it is revoked")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		f, err := open()
		if err != nil {
			return err
		}
		text, err := f.Issue(tokens.Principal{Name: args[0], Role: tokens.Role(role), User: user}, a.env.Now(), expires)
		if err != nil {
			return err
		}
		fmt.Fprintln(a.env.Out, text)
		a.say("%s may ask gateways with --tokens %s as a %s", args[0], f.Path(), role)
		return nil
	}
	return cmd
}

func (a *call) revokeToken(open func() (*tokens.File, error)) *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Refuse a token from now on", Args: command.Exactly("NAME"),
		Long:    "Removes a token. Sessions of browsers that began with it end with the next request, and streams within a quarter of a minute.",
		Example: command.Examples("regroup auth token revoke ada"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := open()
			if err != nil {
				return err
			}
			if err := f.Revoke(args[0]); err != nil {
				return err
			}
			a.say("the token of %s is revoked", args[0])
			return nil
		},
	}
}

func (a *call) listTokens(open func() (*tokens.File, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List tokens", Args: command.Exactly(),
		Long:    "Lists names and roles; the tokens themselves are known to their owners alone.",
		Example: command.Examples("regroup auth token ls", "regroup auth token ls -o json"),
	}
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := open()
		if err != nil {
			return err
		}
		all, err := f.All()
		if err != nil {
			return err
		}
		return command.Print(a.env, cmd, form, all, command.Columns[tokens.Token]{
			Name: func(t tokens.Token) string { return t.Name }, Header: strings.Fields("NAME ROLE USER ISSUED STATE"),
			Row: func(_ screen.Palette, t tokens.Token) []string {
				return []string{t.Name, string(t.Role), t.User, t.Issued.Local().Format(time.DateTime), validity(!t.Expired(a.env.Now()), t.Expires)}
			},
		})
	}
	return cmd
}
