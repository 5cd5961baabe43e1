package node

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
)

// gpuRow is a GPU of a node.
type gpuRow struct {
	Node ident.NodeID `json:"node"`
	Slot *ident.Slot  `json:"slot,omitempty"` // that has it; nil = none alone
	devices.GPU
	Quarantine *events.Quarantine `json:"quarantine,omitempty"` // of the slot
}

func listGPUs(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gpus [NODE]", Short: "List the GPUs of nodes", Args: command.AtMost("NODE"),
		Long: `Lists the GPUs that agents have found, as nvidia-smi has shown them last. BUSY is the part of the time in which a kernel ran. ERRORS are
those of the memory that were corrected and that were not, since the driver was loaded; XID counts what the driver has reported since
the agent has started, with the number of the newest. What could not be read is shown as ?.`,
		Example: command.Examples("regroup node gpus", "regroup node gpus node-b", "regroup node gpus -o json | jq '.[] | select(.fault)'"),
	}
	cmd.ValidArgsFunction = env.Completes(names)
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	cmd.RunE = env.Connected(func(ctx context.Context, s command.Session) error {
		nodes, err := s.Nodes(ctx)
		if err == nil && len(s.Args) > 0 {
			var one events.NodeView
			one, err = s.Node(ctx, s.Args[0])
			nodes = []events.NodeView{one}
		}
		if err != nil {
			return err
		}
		env.SayStale(s.StaleNodes(ctx, nodes))
		return command.Print(env, cmd, form, gpuRows(nodes), command.Columns[gpuRow]{
			Name: func(r gpuRow) string { return string(r.Node) + "/" + r.ID }, None: "no GPUs: an agent finds them with nvidia-smi, or --gpus says which there are",
			Header: []string{"NODE", "SLOT", "GPU", "MODEL", "MEMORY", "BUSY", "TEMP", "ERRORS", "XID", "READ"},
			Row:    func(p screen.Palette, r gpuRow) []string { return r.columns(env, p) },
		})
	})
	return cmd
}

func gpuRows(nodes []events.NodeView) []gpuRow {
	rows := []gpuRow{}
	for _, n := range nodes {
		for i, g := range n.GPUs {
			r := gpuRow{Node: n.Node, GPU: g}
			if n.HasSlotGPUs() {
				slot := ident.Slot(i)
				r.Slot = &slot
				for _, q := range n.QuarantinedSlots {
					if q.Slot == slot {
						r.Quarantine = &q.Quarantine
					}
				}
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func (r gpuRow) columns(env command.Env, p screen.Palette) []string {
	const unknown = "?"
	slot, read := "-", unknown
	if r.Slot != nil {
		slot = strconv.Itoa(int(*r.Slot))
	}
	show := func(format string, n *int) string {
		if n == nil {
			return unknown
		}
		return fmt.Sprintf(format, *n)
	}
	count := func(n *uint64) string {
		if n == nil {
			return unknown
		}
		return strconv.FormatUint(*n, 10)
	}
	gib := func(mib int) string { return fmt.Sprintf("%.1f", float64(mib)/1024) }
	total := unknown
	if r.MemoryMiB > 0 {
		total = gib(r.MemoryMiB)
	}
	g := devices.Reading{}
	if r.Reading != nil {
		g, read = *r.Reading, env.Age(r.Reading.At)
	}
	used := unknown
	if g.UsedMiB != nil {
		used = gib(*g.UsedMiB)
	}
	xids := count(g.Xids)
	if g.LastXid > 0 {
		xids += fmt.Sprintf(" (%d)", g.LastXid)
	}
	out := []string{
		string(r.Node), slot, r.ID, cmp.Or(r.Model, unknown), used + "/" + total + " GiB", show("%d%%", g.BusyPercent), show("%d C", g.Celsius),
		count(g.Corrected) + "/" + count(g.Uncorrected), xids, read,
	}
	switch q := r.Quarantine; {
	case q != nil:
		out = append(out, p.Warn("quarantined: "+q.Reason))
	case r.Fault != nil:
		out = append(out, p.Faint("was at fault "+env.Age(r.Fault.At)+" ago: "+r.Fault.Reason))
	}
	return out
}
