package job

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

type logFlags struct {
	follow                      bool
	rank, node                  string
	gen                         uint64
	tail                        int
	since                       time.Duration
	include, exclude, highlight string
	form                        *command.Format
}

func logs(env command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs [JOB]", Short: "Show the workers' output, merged, with rank and generation", Args: command.AtMost("JOB"),
		Long:    "Prints the output of all workers in the order in which it was stored, each line with node, rank and generation. Of a line that a program overwrites, such as a progress bar, it prints the last state. With -f it goes on until the job has ended. Without a name it is about the job that was submitted last.",
		Example: command.Examples("regroup logs mnist -f", "regroup logs mnist --rank 0,3-5 --tail 100", "regroup logs mnist -i 'loss|error' -e DEBUG -H nan --since 5m"),
	}
	f := &logFlags{}
	fs := cmd.Flags()
	fs.BoolVarP(&f.follow, "follow", "f", false, "go on with what comes")
	fs.StringVar(&f.rank, "rank", "", "only these ranks: 0,3-5")
	fs.StringVar(&f.node, "node", "", "only this node")
	fs.Uint64Var(&f.gen, "gen", 0, "only this generation")
	fs.IntVar(&f.tail, "tail", -1, "only the last N of the stored lines")
	fs.DurationVar(&f.since, "since", 0, "only lines that are younger: 5m")
	fs.StringVarP(&f.include, "include", "i", "", "only lines that match this regular expression")
	fs.StringVarP(&f.highlight, "highlight", "H", "", "make what matches this regular expression stand out")
	fs.StringVarP(&f.exclude, "exclude", "e", "", "no lines that match this regular expression")
	f.form = command.Reading(cmd, command.Text, command.Raw, command.JSONL)
	completeFlags(cmd, env)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := newTail(env, cmd, f)
		if err != nil {
			return err
		}
		return onJob(env, func(ctx context.Context, s command.Session, v events.JobView) error {
			return t.run(ctx, s.Client, v)
		})(cmd, args)
	}
	return cmd
}

type tail struct {
	*logFlags
	env      command.Env
	palette  screen.Palette
	keep     func(view.Line) bool
	stands   *regexp.Regexp // what stands out; nil = nothing
	printed  bool
	last     uint64         // sequence of the newest chunk seen
	withheld []view.Line    // with --tail: the newest of the stored lines
	bottom   *screen.Sticky // the lines that are not finished, while it follows
}

func newTail(env command.Env, cmd *cobra.Command, f *logFlags) (*tail, error) {
	t := &tail{logFlags: f, env: env, palette: env.Palette(cmd, env.IsTerminal), bottom: screen.NewSticky(env.Out, env.IsTerminal, env.Now)}
	if env.IsTerminal && !f.form.Is(command.Raw) {
		t.bottom.Fold(env.Out)
	}
	ranks, ok := view.ParseRanks(f.rank)
	if !ok {
		return nil, errcode.Errorf(errcode.Invalid, "--rank %q is no list of ranks: write 0,3-5", f.rank)
	}
	include, err := pattern("--include", f.include)
	if err != nil {
		return nil, err
	}
	exclude, err := pattern("--exclude", f.exclude)
	if err != nil {
		return nil, err
	}
	if t.stands, err = pattern("--highlight", f.highlight); err != nil {
		return nil, err
	}
	youngest := env.Now().Add(-f.since)
	t.keep = func(l view.Line) bool {
		return ranks.Has(l) &&
			(f.gen == 0 || uint64(l.Generation) == f.gen) &&
			(f.since == 0 || l.Time.After(youngest)) &&
			(include == nil || include.MatchString(output.Plain(l.Text))) &&
			(exclude == nil || !exclude.MatchString(output.Plain(l.Text)))
	}
	return t, nil
}

func pattern(flag, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "%s %q: %w", flag, text, err)
	}
	return re, nil
}

// run reads the stored lines, then with -f new ones until the job has ended, then those that were
// stored meanwhile.
func (t *tail) run(ctx context.Context, c *cluster.Client, v events.JobView) (err error) {
	defer func() { err = errors.Join(err, t.bottom.Finish()) }()
	if err := t.read(ctx, c, v.Job, false); err != nil {
		return err
	}
	for _, l := range t.withheld[max(0, len(t.withheld)-max(0, t.tail)):] {
		if err := t.print(l); err != nil {
			return err
		}
	}
	if !t.follow || v.State.Terminal() {
		if !t.printed && t.selects() {
			fmt.Fprintln(t.env.Err, "there is no such line"+t.others(v))
		}
		return nil
	}
	t.tail, t.withheld = -1, nil
	err = boot.Both(ctx,
		func(ctx context.Context) error { return t.read(ctx, c, v.Job, true) },
		func(ctx context.Context) error { return c.AwaitEnd(ctx, v.Job) })
	if err != nil {
		return command.Interrupted(ctx, err)
	}
	return command.Interrupted(ctx, t.read(ctx, c, v.Job, false))
}

// others says what the job has, where the flags select a node, a rank or a generation that it never
// had; else "".
func (t *tail) others(v events.JobView) string {
	of, all := nodes(v), []ident.Rank{}
	known := map[ident.Generation]bool{}
	for _, g := range v.Generations {
		known[g.Generation] = true
		for _, m := range g.Members {
			all = append(all, m.Rank)
		}
	}
	chosen, _ := view.ParseRanks(t.rank) // it was read before
	switch {
	case len(all) == 0:
		return ": no worker has started yet"
	case t.node != "" && !slices.Contains(of, t.node):
		return ": the nodes of the job are " + strings.Join(of, ", ")
	case t.rank != "" && !slices.ContainsFunc(all, func(r ident.Rank) bool { return chosen.Has(view.Line{Rank: r}) }):
		return fmt.Sprintf(": the ranks of the job are %d to %d", slices.Min(all), slices.Max(all))
	case t.gen > 0 && !known[ident.Generation(t.gen)]:
		return fmt.Sprintf(": the job has no generation %d; the newest is %d", t.gen, v.Generation)
	}
	return ""
}

// selects reports whether not every line is wanted.
func (f *logFlags) selects() bool {
	return f.rank+f.node+f.include+f.exclude != "" || f.gen > 0 || f.since > 0
}

func (t *tail) read(ctx context.Context, c *cluster.Client, job ident.JobID, follow bool) error {
	return c.Logs(ctx, job, cluster.LogsFrom{Node: ident.NodeID(t.node), After: t.last, Follow: follow}, func(l view.Line) error {
		t.last = max(t.last, l.Sequence)
		switch {
		case !t.keep(l):
			t.bottom.Drop(l.Source())
			return nil
		case t.tail == 0:
			return nil
		case t.tail < 0:
			return t.print(l)
		}
		t.withheld = append(t.withheld, l)
		if len(t.withheld) > 2*t.tail { // in batches, not for each line
			t.withheld = append(t.withheld[:0], t.withheld[len(t.withheld)-t.tail:]...)
		}
		return nil
	})
}

func (t *tail) print(l view.Line) error {
	t.printed = true
	p := t.palette.Line(l)
	p.Open = l.Open && t.follow
	if t.stands != nil {
		p.Text = t.palette.Highlight(t.stands, p.Text)
	}
	if t.form.Is(command.Raw) {
		if p.Prefix = ""; !t.env.IsTerminal {
			p.Text = l.Text
		}
	} else if written, err := t.form.Item(t.env.Out, l); written {
		return err
	}
	return t.bottom.Line(t.env.Out, t.env.IsTerminal, p)
}
