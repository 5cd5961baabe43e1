package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func names(ctx context.Context, c *cluster.Client) ([]cobra.Completion, error) {
	nodes, err := c.Nodes(ctx)
	words := make([]cobra.Completion, len(nodes))
	for i, n := range nodes {
		words[i] = cobra.CompletionWithDesc(string(n.Node), strings.Join(append([]string{string(n.State)}, conditions(n)...), ", "))
	}
	return words, err
}

// conditions lists the conditions of a node in addition to its state.
func conditions(n events.NodeView) []string {
	var out []string
	if n.Draining {
		out = append(out, "draining")
	}
	if n.Quarantine != nil {
		out = append(out, "quarantined")
	}
	if n.Excluded != "" {
		out = append(out, "excluded")
	}
	return out
}

// reasons describes why a node is in its state, and why and how long it or its slots are
// quarantined.
func reasons(env command.Env, n events.NodeView) string {
	var out []string
	if n.Reason != "" {
		out = append(out, n.Reason)
	}
	if n.Excluded != "" {
		out = append(out, "may not be used: "+n.Excluded)
	}
	say := func(what string, q events.Quarantine) {
		text := fmt.Sprintf("%s %s more: %s", what, view.Span(q.Until.Sub(env.Now())), q.Reason)
		if q.Count > 1 {
			text += fmt.Sprintf(" (%d in a row)", q.Count)
		}
		out = append(out, text)
	}
	if n.Quarantine != nil {
		say("quarantined", *n.Quarantine)
	}
	for _, b := range n.QuarantinedSlots {
		say(fmt.Sprintf("slot %d quarantined", b.Slot), b.Quarantine)
	}
	return strings.Join(out, "; ")
}

// target resolves NODE[/SLOT].
func target(ctx context.Context, s command.Session) (events.NodeView, *ident.Slot, error) {
	name, number, one := strings.Cut(s.Args[0], "/")
	n, err := s.Node(ctx, name)
	if err != nil || !one {
		return n, nil, err
	}
	i, err := strconv.Atoi(number)
	if err != nil {
		return n, nil, errcode.Errorf(errcode.Invalid, "%q is not a slot: write %s/0", number, n.Node)
	}
	slot := ident.Slot(i)
	return n, &slot, nil
}

func called(n ident.NodeID, slot *ident.Slot) string {
	if slot == nil {
		return string(n)
	}
	return ident.Place{Node: n, Slot: *slot}.String()
}

func quarantine(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quarantine NODE[/SLOT]", Short: "Keep a node or a slot out for a time", Args: command.Exactly("NODE[/SLOT]"),
		Long:    "Keeps a node out for a time: it gets no new work, and what runs there stays (to move it away, drain the node). A slot that is named gives its worker away, too, at a commit. It ends by itself; a quarantine that runs already is replaced.",
		Example: command.Examples("regroup node quarantine node-b --for 2h --reason 'hot'", "regroup node quarantine node-b/3 --reason 'bad GPU'", "regroup node release node-b"),
	}
	cmd.ValidArgsFunction = env.Completes(names)
	for_ := cmd.Flags().Duration("for", 10*time.Minute, "for how long")
	reason := cmd.Flags().String("reason", "", "why; it is shown with the node")
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		if *for_ <= 0 {
			return errcode.Errorf(errcode.Invalid, "--for is %s: a quarantine lasts for some time", *for_)
		}
		n, slot, err := target(ctx, s)
		if err != nil {
			return err
		}
		if err := s.ChangeNode(ctx, cluster.Quarantine(events.NodeQuarantine{Node: n.Node, Slot: slot, For: spec.Duration(*for_), Reason: *reason})); err != nil {
			return err
		}
		fmt.Fprintf(env.Err, "%s is in quarantine for %s; end it with: regroup node release %s\n", called(n.Node, slot), *for_, called(n.Node, slot))
		return nil
	})
	return cmd
}

func release(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "release NODE[/SLOT]", Short: "End the quarantine of a node or a slot", Args: command.Exactly("NODE[/SLOT]"),
		Long:    "Ends the quarantine of a node and of all its slots, or of one slot. What led to it is forgiven: the next one begins with the shortest time again.",
		Example: command.Examples("regroup node release node-b", "regroup node release node-b/3 --reason 'new GPU'"),
	}
	cmd.ValidArgsFunction = env.Completes(names)
	reason := cmd.Flags().String("reason", "", "why; it is told with the release")
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		n, slot, err := target(ctx, s)
		if err != nil {
			return err
		}
		if !cluster.Quarantined(n, slot) {
			hint := ""
			if n.Draining {
				hint = "; it drains, which regroup node drain " + string(n.Node) + " --undo ends"
			}
			fmt.Fprintf(env.Err, "%s is not in quarantine: nothing to do%s\n", called(n.Node, slot), hint)
			return nil
		}
		if err := s.ChangeNode(ctx, cluster.Release(events.NodeRelease{Node: n.Node, Slot: slot, Reason: *reason})); err != nil {
			return err
		}
		fmt.Fprintf(env.Err, "%s is released\n", called(n.Node, slot))
		return nil
	})
	return cmd
}
