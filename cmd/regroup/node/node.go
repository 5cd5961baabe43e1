// Package node is the commands that look at the machines or take work away from one.
package node

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
)

// Command returns regroup node with its verbs.
func Command(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Short: "Look at nodes, drain one",
		Long: command.Help("A node is a machine that runs an agent. Its slots are given to jobs while it is ready and not draining.",
			"regroup node ls", "regroup node drain node-b", "regroup node drain node-b --undo"),
	}
	cmd.AddCommand(list(env), drain(env))
	return command.Polish(cmd)
}

func list(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List nodes", Args: command.Exactly(),
		Long: command.Help("Lists every node with discovery's opinion of it. USED counts the slots that the scheduler has given to jobs.",
			"regroup node ls", "regroup node ls -o wide", "regroup node ls -o json | jq '.[] | select(.state == \"lost\")'"),
	}
	form := command.Output(cmd, command.Table, command.Wide, command.JSON, command.YAML, command.Name)
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		nodes, err := s.Nodes(ctx)
		if err != nil {
			return err
		}
		pool, err := s.Placement(ctx)
		if err != nil {
			return err
		}
		rows := withUse(nodes, pool)
		if written, err := form.Write(env.Out, rows); written {
			return err
		}
		if form.Is(command.Name) {
			for _, n := range nodes {
				fmt.Fprintln(env.Out, n.Node)
			}
			return nil
		}
		if len(nodes) == 0 {
			fmt.Fprintln(env.Err, "no nodes; start an agent on each machine: regroup agent")
			return nil
		}
		return table(env, s.Palette, rows, form.Is(command.Wide))
	})
	return cmd
}

// used is a node with what the scheduler has given away of it.
type used struct {
	events.NodeView
	Used int `json:"used"`
}

func withUse(nodes []events.NodeView, pool events.PoolView) []used {
	count := map[events.NodeID]int{}
	for _, p := range pool.Jobs {
		for _, place := range p.Places {
			count[place.Node]++
		}
	}
	out := make([]used, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, used{n, count[n.Node]})
	}
	return out
}

func table(env command.Env, p screen.Palette, nodes []used, wide bool) error {
	header := []string{"NODE", "STATE", "SLOTS", "USED", "SINCE"}
	if wide {
		header = append(header, "ADDRESS", "INCARNATION")
	}
	rows := make([][]string, 0, len(nodes))
	for _, n := range nodes {
		state := p.State(string(n.State))
		if n.Draining {
			state += "," + p.State("draining")
		}
		r := []string{string(n.Node), state, fmt.Sprint(n.Slots), fmt.Sprint(n.Used), env.Age(n.Since)}
		if wide {
			r = append(r, n.Address, string(n.Incarnation))
		}
		if n.Reason != "" {
			r = append(r, p.Faint(n.Reason))
		}
		rows = append(rows, r)
	}
	return screen.Table(env.Out, p, header, rows)
}

func drain(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Give a node no more work and move its work away", Args: command.Exactly("NODE"),
		Long: command.Help("Gives the node no more work. What runs there moves away as a planned change: at a commit, without losing a step. With --undo\nthe node takes work again.",
			"regroup node drain node-b", "regroup node drain node-b --reason 'new disk'", "regroup node drain node-b --undo"),
	}
	cmd.ValidArgsFunction = env.Completes(func(ctx context.Context, c *client.Client) ([]cobra.Completion, error) {
		nodes, err := c.Nodes(ctx)
		words := make([]cobra.Completion, len(nodes))
		for i, n := range nodes {
			words[i] = cobra.CompletionWithDesc(string(n.Node), string(n.State))
		}
		return words, err
	})
	undo := cmd.Flags().Bool("undo", false, "let it take work again")
	reason := cmd.Flags().String("reason", "", "why; it is shown with the node")
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		n, err := s.Node(ctx, s.Args[0])
		if err != nil {
			return err
		}
		if n.Draining != *undo {
			fmt.Fprintf(env.Err, "%s is so already: nothing to do\n", n.Node)
			return nil
		}
		if err := s.Drain(ctx, n.Node, *reason, *undo); err != nil {
			return err
		}
		if *undo {
			fmt.Fprintf(env.Err, "%s takes work again\n", n.Node)
		} else {
			fmt.Fprintf(env.Err, "%s is draining\n", n.Node)
		}
		return nil
	})
	return cmd
}
