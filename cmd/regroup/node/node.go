// Package node implements the commands that show, drain and quarantine nodes.
package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Command returns regroup node with its verbs.
func Command(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Short: "Look at nodes, drain or quarantine one",
		Long:    "A node is a machine that runs an agent. Its slots are given to jobs while it is ready, does not drain, is not in quarantine and is on the list of hosts, if there is one.",
		Example: command.Examples("regroup node ls", "regroup node drain node-b", "regroup node quarantine node-b/1 --for 1h --reason 'bad GPU'", "regroup node release node-b"),
	}
	cmd.AddCommand(list(env), listGPUs(env), drain(env), quarantine(env), release(env))
	return command.WithUsage(cmd)
}

func list(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List nodes", Args: command.Exactly(),
		Long:    "Lists every node with discovery's opinion of it. SLOTS are those that may get work now, of all that it has; USED counts those that the scheduler has given to jobs. What keeps a node or a slot out is said behind, and until when.",
		Example: command.Examples("regroup node ls", "regroup node ls -o wide", "regroup node ls -o json | jq '.[] | select(.state == \"lost\")'"),
	}
	form := command.Reading(cmd, command.Table, command.Wide, command.JSON, command.YAML, command.Name)
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		nodes, err := s.Nodes(ctx)
		if err != nil {
			return err
		}
		env.SayStale(s.StaleNodes(ctx, nodes))
		pool, err := s.Placement(ctx)
		if err != nil {
			return err
		}
		header := []string{"NODE", "STATE", "SLOTS", "USED", "SINCE"}
		if form.Is(command.Wide) {
			header = append(header, "GPUS", "ADDRESS", "VERSION", "INCARNATION")
		}
		return command.Print(env, cmd, form, withUse(nodes, pool), command.Columns[used]{
			Name: func(n used) string { return string(n.Node) }, None: "no nodes; start an agent on each machine: regroup agent", Header: header,
			Row: func(p screen.Palette, n used) []string { return row(env, p, n, form.Is(command.Wide)) },
		})
	})
	return cmd
}

type used struct {
	events.NodeView
	Usable int `json:"usable"` // slots
	Used   int `json:"used"`
}

func withUse(nodes []events.NodeView, pool events.PoolView) []used {
	work := view.Used(pool)
	out := make([]used, 0, len(nodes))
	for _, n := range nodes {
		u := used{NodeView: n, Usable: n.SchedulableSlots()}
		for _, slots := range work[n.Node] {
			u.Used += slots
		}
		out = append(out, u)
	}
	return out
}

func row(env command.Env, p screen.Palette, n used, wide bool) []string {
	state := p.State(string(n.State))
	for _, also := range conditions(n.NodeView) {
		state += "," + p.State(also)
	}
	r := []string{string(n.Node), state, fmt.Sprintf("%d/%d", n.Usable, n.Slots), fmt.Sprint(n.Used), env.Age(n.Since)}
	if wide {
		r = append(r, gpus(n.GPUs)+speeds(n.Preflight), n.Address, cmp.Or(n.Version, "-"), string(n.Incarnation))
	}
	if why := reasons(env, n.NodeView); why != "" {
		r = append(r, p.Faint(why))
	}
	return r
}

// gpus says which GPUs there are, as 8 x NVIDIA H100 80GB HBM3.
func gpus(all []devices.GPU) string {
	var models []string
	number := map[string]int{}
	for _, g := range all {
		model := cmp.Or(g.Model, "?")
		if number[model]++; number[model] == 1 {
			models = append(models, model)
		}
	}
	for i, model := range models {
		models[i] = fmt.Sprintf("%d x %s", number[model], model)
	}
	return cmp.Or(strings.Join(models, ", "), "-")
}

func drain(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Give a node no more work and move its work away", Args: command.Exactly("NODE"),
		Long:    "Gives the node no more work. What runs there moves away as a planned change: at a commit, without losing a step. With --undo the node takes work again.",
		Example: command.Examples("regroup node drain node-b", "regroup node drain node-b --reason 'new disk'", "regroup node drain node-b --undo"),
	}
	cmd.ValidArgsFunction = env.Completes(names)
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
		if err := s.ChangeNode(ctx, cluster.Drain(n.Node, *reason, *undo)); err != nil {
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
