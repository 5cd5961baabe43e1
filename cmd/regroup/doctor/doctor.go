// Package doctor implements `regroup doctor`, which finds what breaks torch.distributed on this
// machine.
//
// Each check is a function of what it has read, so that tests can make each finding happen; the
// command reads from the machine.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/internal/exitcode"
)

// limit bounds all checks together; probeLimit the Python process, which imports torch, serverLimit
// the server.
const (
	limit       = 2 * time.Minute
	probeLimit  = limit - 10*time.Second
	serverLimit = 3 * time.Second
)

// state is how serious a finding is.
type state string

const (
	ok      state = "ok"
	note    state = "note"    // worth knowing, or slower than it could be
	problem state = "problem" // training fails or hangs
)

// finding is the result of a check.
type finding struct {
	Check string `json:"check"`
	State state  `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix"` // what to do; empty if ok
}

func fine(check, format string, args ...any) finding {
	return finding{Check: check, State: ok, Found: fmt.Sprintf(format, args...)}
}

// Command is `regroup doctor`; version is that of this binary.
func Command(env command.Env, c *boot.Config, advertise func() string, version string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what breaks torch.distributed on this machine", Args: command.Exactly(),
		Long: `Checks Python and torch, host name, interfaces and ports, shared memory, limits, GPUs, the environment, and the server if
one is configured. It says what to do about each finding. Exits 1 if there is a problem, 0 if there are only notes.

With --gpu it measures the GPUs instead, all at the same time: a matrix product, whose result is checked, the memory, whose
content is checked, copies to and from the host, and an all-reduce. Beside each figure stands the median of the others of the
same model, and a GPU that is far slower is named. It takes up to a minute. Jobs that run there lose speed, and may lack memory.`,
		Example: command.Examples("regroup doctor", "regroup doctor --python .venv/bin/python", "regroup doctor -o json", "regroup doctor --gpu"),
	}
	python := cmd.Flags().String("python", "", "interpreter to check (default: $PYTHON_EXEC, or python3)")
	gpu := cmd.Flags().Bool("gpu", false, "measure the GPUs, and nothing else")
	form := command.Reading(cmd, command.Text, command.JSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m := machine{env: env, config: c, advertise: advertise, version: version, python: *python}
		var all []finding
		var document any
		if *gpu {
			found := m.measure(cmd.Context())
			all, document = findings(found), found
		} else {
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			all = m.check(ctx)
			document = all
		}
		if cmd.Context().Err() != nil {
			return context.Cause(cmd.Context())
		}
		written, err := form.Write(env.Out, document)
		if !written {
			err = write(env.Out, env.Palette(cmd, env.IsTerminal), all)
		}
		if err == nil && worst(all) == problem {
			err = &exitcode.Error{Code: exitcode.Unexpected} // the findings have been printed
		}
		return err
	}
	return cmd
}

func worst(all []finding) state {
	w := ok
	for _, f := range all {
		if f.State == problem || w == ok {
			w = f.State
		}
		if w == problem {
			break
		}
	}
	return w
}

// write prints a line for each finding, and below it what to do.
func write(w io.Writer, p screen.Palette, all []finding) error {
	var b strings.Builder
	counts := map[state]int{}
	for _, f := range all {
		counts[f.State]++
		label := fmt.Sprintf("%-8s", f.State)
		switch f.State {
		case ok:
			label = p.Good(label)
		case note:
			label = p.Warn(label)
		case problem:
			label = p.Bad(label)
		}
		fmt.Fprintf(&b, "%s %-18s %s\n", label, f.Check, escape.Text(f.Found))
		if f.Fix != "" {
			fmt.Fprintf(&b, "         %s\n", p.Faint("→ "+escape.Text(f.Fix)))
		}
	}
	fmt.Fprintf(&b, "\n%s, %s\n", english.Plural(counts[problem], "problem"), english.Plural(counts[note], "note"))
	_, err := io.WriteString(w, b.String())
	return err
}
