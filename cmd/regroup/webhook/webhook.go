// Package webhook implements the commands for the webhooks of a gateway.
package webhook

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/escape"
)

// Gateway returns the client of the gateway at a URL; empty = the one of this user's settings.
type Gateway func(url string) (*client.Client, error)

type call struct {
	env     command.Env
	gateway Gateway
	url     string
}

// Command returns regroup webhook with its verbs.
func Command(env command.Env, gateway Gateway, url string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhook", Short: "Send facts to the addresses of others",
		Long: "A gateway sends facts to webhooks, with a signed POST request each (docs/http.md). The gateway is the one that this user runs here: that of regroup up --dashboard or serve gateway. Of a gateway elsewhere give --url and REGROUP_GATEWAY_TOKEN.",
		Example: command.Examples("regroup webhook ls", "regroup webhook add https://chat.lab/hook --type 'incident.*'",
			"regroup webhook test 01JDEV4Q6W2M5T1R3B8X9Y7Z0A"),
	}
	c := &call{env: env, gateway: gateway}
	cmd.PersistentFlags().StringVar(&c.url, "url", url, "address of a gateway elsewhere (REGROUP_GATEWAY_URL); its token is REGROUP_GATEWAY_TOKEN")
	cmd.AddCommand(c.list(), c.add(),
		c.one("rm ID", "Send no more there", "Ends a webhook, with the facts that were set aside for it.", func(ctx context.Context, g *client.Client, id string) (string, error) {
			return id + " is removed", g.RemoveWebhook(ctx, id)
		}),
		c.one("test ID", "Send an event that is no fact, once", "Asks the target for its permission, and sends it an event that is no fact. What it answers instead of taking it is the error.", func(ctx context.Context, g *client.Client, id string) (string, error) {
			return "it was taken", g.TestWebhook(ctx, id)
		}),
		c.one("replay ID", "Send the facts that were set aside once more", "Sends the facts that were set aside in their order, up to the first that is not taken. Those that are no longer kept are counted as forgotten (ls -o json). If the time is over before the last one, give more with --timeout, or say it again: what was taken is not sent twice.", func(ctx context.Context, g *client.Client, id string) (string, error) {
			_, err := g.ReplayWebhook(ctx, id)
			return "all that are still kept were taken", err
		}),
	)
	return command.WithUsage(cmd)
}

// run calls fn with the gateway and the time that the command has.
func (c *call) run(cmd *cobra.Command, fn func(context.Context, *client.Client) error) error {
	within, err := command.Timeout(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), within)
	defer cancel()
	g, err := c.gateway(c.url)
	if err != nil {
		return err
	}
	return fn(ctx, g)
}

func (c *call) one(use, short, long string, do func(context.Context, *client.Client, string) (string, error)) *cobra.Command {
	verb, _, _ := strings.Cut(use, " ")
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: command.Exactly("ID"),
		Example: command.Examples("regroup webhook " + verb + " 01JDEV4Q6W2M5T1R3B8X9Y7Z0A"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, func(ctx context.Context, g *client.Client) error {
				done, err := do(ctx, g, args[0])
				if err == nil {
					fmt.Fprintln(c.env.Err, done)
				}
				return err
			})
		},
	}
}

func (c *call) list() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List webhooks, and how it goes with them", Args: command.Exactly(),
		Long:    "Lists the webhooks of the gateway. TARGET is what the target has answered to the request for its permission; the reason, and why the last fact was not taken, are said behind.",
		Example: command.Examples("regroup webhook ls", "regroup webhook ls -o json | jq '.[] | select(.target.granted | not)'"),
	}
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.run(cmd, func(ctx context.Context, g *client.Client) error {
			all, err := g.Webhooks(ctx)
			if err != nil {
				return err
			}
			return command.Print(c.env, cmd, form, all, command.Columns[client.Webhook]{
				Name: func(w client.Webhook) string { return w.ID }, Header: strings.Fields("ID URL FORM TYPES HANDSHAKE TARGET DELIVERED ASIDE"), Row: row,
			})
		})
	}
	return cmd
}

func row(p screen.Palette, w client.Webhook) []string {
	types := strings.Join(w.Types, ",")
	if types == "" {
		types = "all"
	}
	why := w.Target.Reason
	if w.LastError != "" && !strings.Contains(w.LastError, why) || why == "" {
		why = w.LastError
	}
	r := []string{w.ID, escape.Text(w.URL), cmp.Or(w.Form, "cloudevent"), escape.Text(types), w.Handshake, target(w), strconv.FormatUint(w.Delivered, 10), strconv.Itoa(len(w.Parked))}
	if why != "" {
		r = append(r, p.Faint(escape.Text(why)))
	}
	return r
}

// target says in a word what a target has answered.
func target(w client.Webhook) string {
	switch t := w.Target; {
	case !t.Gone.IsZero():
		return "retired"
	case w.Handshake == "off" || t.Asked.IsZero() && t.Reason == "":
		return "not asked"
	case !t.Granted:
		return "not agreed"
	case t.Rate > 0:
		return fmt.Sprintf("agreed, %d/min", t.Rate)
	default:
		return "agreed"
	}
}

func (c *call) add() *cobra.Command {
	var n client.NewWebhook
	var job string
	cmd := &cobra.Command{
		Use: "add URL", Short: "Send the facts from now on to an address", Args: command.Exactly("URL"),
		Long: "Makes a webhook and prints its secret, this once: what receivers verify signatures with. With --handshake required its target must agree first, as the CloudEvents specification of web hooks describes; where it does not, the reason is the error and no webhook is made. With --form slack, teams or discord the URL is that of an incoming webhook of Slack, of a workflow of Teams or of a webhook of Discord, and each fact is the sentence that regroup events prints.",
		Example: command.Examples("regroup webhook add https://chat.lab/hook --type job.failed",
			"regroup webhook add https://chat.lab/hook --handshake required", "regroup webhook add \"$SLACK_URL\" --form slack --type 'incident.*'", "regroup webhook add https://chat.lab/hook --rate 60 --job mnist-7f3a"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.URL, n.Job = args[0], ident.JobID(job)
			return c.run(cmd, func(ctx context.Context, g *client.Client) error {
				w, err := g.AddWebhook(ctx, n)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.env.Err, "webhook %s; its secret, which is not shown again:\n", w.ID)
				_, err = fmt.Fprintln(c.env.Out, w.Secret)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&n.Types, "type", nil, "`PATTERN` of facts, like incident.* or job.failed; may be repeated; default: all")
	f.StringVar(&job, "job", "", "only facts about this job")
	f.StringVar(&n.Form, "form", "cloudevent", "`FORM` of what is sent: cloudevent, or a message for a chat, slack, teams or discord")
	f.StringVar(&n.Handshake, "handshake", "", "`WHEN` its target must agree: optional, required or off; default: optional, for a chat off")
	f.IntVar(&n.Rate, "rate", 0, "at most so many requests a minute; default: as many as there are facts, or as the target grants")
	return cmd
}
