package job

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/e2e/terminal"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

const (
	esc   = "\x1b["
	green = esc + "32m"
)

// barred is a job with two workers: the bar of the first is finished, that of the other is not.
func barred(t *testing.T) commandtest.World {
	t.Helper()
	w := commandtest.New(t)
	w.Job(running())
	first, second := tables.Member{Place: place("node-a", 0), Rank: 0}, tables.Member{Place: place("node-a", 1), Rank: 1}
	w.PrintAs(mnist, first, 1, "begins\r\n"+green+" 10%"+esc+"0m\r")
	w.PrintAs(mnist, second, 1, " 5%\r")
	w.PrintAs(mnist, first, 1, green+" 20%\r")
	w.PrintAs(mnist, first, 1, green+"100%\n"+esc+"1mloss"+esc+"0m: 3 "+esc+"2J\n")
	w.PrintAs(mnist, second, 1, " 6%\r")
	return w
}

// TestLogsOfBars: what is stored is shown with the last state of each bar, that of one that goes on
// at the end, and with colours where they are wanted.
func TestLogsOfBars(t *testing.T) {
	w := barred(t)
	for line, want := range map[string]string{
		"logs mnist":                  "[node-a r0 g1] begins\n[node-a r0 g1] 100%\n[node-a r0 g1] loss: 3 \\x1b[2J\n[node-a r1 g1]  6%\n",
		"logs mnist --tail 2":         "[node-a r0 g1] loss: 3 \\x1b[2J\n[node-a r1 g1]  6%\n",
		"logs mnist --rank 1":         "[node-a r1 g1]  6%\n",
		"logs mnist -i ^loss:":        "[node-a r0 g1] loss: 3 \\x1b[2J\n",
		"logs mnist -e %|begins":      "[node-a r0 g1] loss: 3 \\x1b[2J\n",
		"logs mnist -o raw":           "begins\n" + green + "100%\n" + esc + "1mloss" + esc + "0m: 3 " + esc + "2J\n 6%\n",
		"logs mnist --color never -f": "[node-a r0 g1] begins\n[node-a r0 g1] 100%\n[node-a r0 g1] loss: 3 \\x1b[2J\n[node-a r1 g1]  6%\n",
	} {
		commands := Commands
		if strings.HasSuffix(line, "-f") {
			v := running()
			v.State = events.JobStateFailed
			w.Job(v)
		}
		if o := w.Run(t.Context(), "", commands, strings.Split(line, " ")...); o.Exit != 0 || o.Out != want {
			t.Errorf("%s: %q, want %q %v", line, o.Out, want, o.Failure)
		}
	}
	coloured := "[node-a r0 g1]" + esc + "0m " + green + "100%" + esc + "0m\n"
	if o := run(t, w, "logs", "mnist", "--color", "always"); !strings.Contains(o.Out, coloured) || strings.Contains(o.Out, esc+"2J") {
		t.Errorf("in colours: %q, which lacks %q", o.Out, coloured)
	}
	o := run(t, w, "logs", "mnist", "-o", "jsonl")
	if strings.Count(o.Out, `"open":true`) != 1 || !strings.Contains(o.Out, `"text":" 6%","open":true`) || !strings.Contains(o.Out, `"text":"\u001b[32m100%"`) {
		t.Errorf("for programs:\n%s", o.Out)
	}
}

// TestLogsFollowBars on a terminal: each bar is one line at the bottom until it is finished.
func TestLogsFollowBars(t *testing.T) {
	w := barred(t)
	screen := &watched{Screen: terminal.Screen{Width: 60}, changed: make(chan struct{}, 1)}
	commands := func(env command.Env) []*cobra.Command {
		env.Out, env.IsTerminal = screen, true
		return Commands(env)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan commandtest.Output)
	go func() { ended <- w.Run(ctx, "", commands, "logs", "mnist", "-f", "-e", "hidden") }()
	const above = "[node-a r0 g1] begins\n[node-a r0 g1] 100%\n[node-a r0 g1] loss: 3 \\x1b[2J\n"
	screen.until(ctx, t, above+"[node-a r1 g1]  6%\n")
	second := tables.Member{Place: place("node-a", 1), Rank: 1}
	w.PrintAs(mnist, tables.Member{Place: place("node-a", 0), Rank: 0}, 1, "next 1%\r")
	screen.until(ctx, t, above+"[node-a r0 g1] next 1%\n[node-a r1 g1]  6%\n")
	w.PrintAs(mnist, second, 1, " 7%\r")
	screen.until(ctx, t, above+"[node-a r0 g1] next 1%\n[node-a r1 g1]  7%\n")
	w.PrintAs(mnist, second, 1, "hidden\n")
	screen.until(ctx, t, above+"[node-a r0 g1] next 1%\n")
	w.PrintAs(mnist, second, 1, "after it\n")
	screen.until(ctx, t, above+"[node-a r1 g1] after it\n[node-a r0 g1] next 1%\n")
	v := running()
	v.State, v.Ended = events.JobStateFailed, clustertest.Now
	w.Job(v)
	w.Publish(events.Event{Entity: string(mnist), Body: events.JobFailed{JobEnd: events.JobEnd{Job: mnist, Reason: "done"}}})
	if o := <-ended; o.Exit != 0 {
		t.Errorf("exit %d: %v", o.Exit, o.Failure)
	}
	screen.until(ctx, t, above+"[node-a r1 g1] after it\n[node-a r0 g1] next 1%\n")
}

// watched is a screen that is written and read at once.
type watched struct {
	mu sync.Mutex
	terminal.Screen
	changed chan struct{} // capacity 1
}

// Write implements io.Writer.
func (w *watched) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return w.Screen.Write(data)
}

// until waits until the screen shows a text.
func (w *watched) until(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	for {
		w.mu.Lock()
		got := w.String()
		w.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			t.Fatalf("it shows\n%s, want\n%s", got, want)
		}
	}
}

// TestLogsFold: what four ranks say at once is one line on a terminal, unless the text alone is
// wanted. The clock stands still, so all were stored at once.
func TestLogsFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := commandtest.New(t)
		w.Job(running())
		each := ""
		for r := range 4 {
			w.PrintAs(mnist, tables.Member{Place: place("node-a", r), Rank: ident.Rank(r)}, 1, "epoch 3\n")
			each += fmt.Sprintf("[node-a r%d g1] epoch 3\n", r)
		}
		for line, want := range map[string]string{"logs mnist": "[r0-3 g1] epoch 3\n", "logs mnist --rank 0-2": strings.Join(strings.SplitAfter(each, "\n")[:3], ""), "logs mnist -o raw": strings.Repeat("epoch 3\n", 4)} {
			screen := &terminal.Screen{Width: 60}
			commands := func(env command.Env) []*cobra.Command {
				env.Out, env.IsTerminal = screen, true
				return Commands(env)
			}
			if o := w.Run(t.Context(), "", commands, strings.Split(line, " ")...); o.Exit != 0 || screen.String() != want {
				t.Errorf("%s on a terminal: %q, want %q %v", line, screen.String(), want, o.Failure)
			}
		}
		if o := run(t, w, "logs", "mnist"); o.Out != each {
			t.Errorf("in a pipe: %q, want %q", o.Out, each)
		}
	})
}
