package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/e2e/terminal"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 21, 14, 2, 11, 0, time.UTC)

// source has jobs until it is lost.
type source struct {
	seen Overview
	lost bool
}

var errLost = errors.New("the server does not answer")

func (s *source) Overview(context.Context) (Overview, error) {
	if s.lost {
		return Overview{}, errLost
	}
	return s.seen, nil
}

func (s *source) Job(_ context.Context, id ident.JobID) (view.Job, error) {
	if s.lost {
		return view.Job{}, errLost
	}
	for _, v := range s.seen.Jobs {
		if v.Job == id {
			return v, nil
		}
	}
	return view.Job{}, &exitcode.Error{Code: exitcode.NotFound}
}

func (s *source) Lines(_ context.Context, id ident.JobID) (all []view.Line, err error) {
	for n := range 30 {
		all = append(all, view.Line{Job: id, Place: ident.Place{Node: "node-a"}, Rank: 0, Generation: 3, Text: fmt.Sprintf("epoch %d \x1b[2Jloss", n)})
	}
	return all, nil
}

func three() *source {
	job := func(name string, state events.JobState, step uint64, workers int, age time.Duration) events.JobView {
		v := events.JobView{Job: ident.JobID(name), State: state, Step: step, Generation: 3, Submitted: noon.Add(-age), StepAt: noon.Add(-300 * time.Millisecond)}
		v.Spec = spec.Job{Command: []string{"python", name + ".py"}, Workers: spec.Workers{Min: 2, Max: 4}}
		for r := range workers {
			w := tables.WorkerView{Rank: ident.Rank(r), State: tables.WorkerStateReady}
			w.WorkerRef = tables.WorkerRef{Place: ident.Place{Node: "node-a", Slot: ident.Slot(r)}, Generation: 3, Attempt: 1, PID: 4000 + r}
			v.Workers = append(v.Workers, w)
		}
		return v
	}
	mnist := job("mnist-7f3a", events.JobStateRunning, 4612, 4, time.Minute)
	place := ident.Place{Node: "node-c"}
	for n := range 7 {
		mnist.Incidents = append(mnist.Incidents, events.IncidentClosed{
			Incident: n + 1, From: 1, To: 2, TotalMS: 1800, Phases: events.Phases{Judge: 1800}, StepsLost: new(uint64),
			Cause: events.Cause{Kind: events.CauseWorkerFailed, Place: &place, Rank: 2, Detail: "killed by signal 9 (SIGKILL)"},
		})
	}
	waiting := job("gpt-0c22", events.JobStateWaiting, 0, 0, 12*time.Second)
	waiting.Generation, waiting.Reason = 0, "needs 8 slots, 3 are free"
	views := []events.JobView{waiting, mnist, job("bert-1a2b", events.JobStateRunning, 90, 2, time.Hour)}
	return &source{seen: Overview{
		At: noon, Jobs: view.Jobs(views), Silent: []string{},
		Nodes: []events.NodeView{
			{Node: "node-a", State: events.NodeStateReady, Slots: 4, Since: noon.Add(-time.Hour)},
			{Node: "node-b", State: events.NodeStateLost, Slots: 4, Since: noon.Add(-time.Minute)},
		},
	}}
}

// session is a view of a source whose messages are delivered at once.
type session struct {
	m model
	t *testing.T
}

func watching(t *testing.T, s *source, width, height int, p screen.Palette) *session {
	_, tty := terminal.Open(t)
	m := newModel(t.Context(), Options{Source: s, Every: time.Hour, Palette: p, Now: func() time.Time { return noon }, In: tty})
	v := &session{m, t}
	v.send(tea.WindowSizeMsg{Width: width, Height: height})
	v.refresh()
	return v
}

// send delivers a message, and what its command answers; not the next tick.
func (s *session) send(msg tea.Msg) {
	next, cmd := s.m.Update(msg)
	s.m = next.(model)
	if _, frame := msg.(overviewMsg); cmd == nil || frame { // it waits for the next one
		return
	}
	s.deliver(cmd())
}

func (s *session) deliver(msg tea.Msg) {
	if batch, ok := msg.(tea.BatchMsg); ok {
		for _, cmd := range batch {
			if cmd != nil {
				s.deliver(cmd())
			}
		}
		return
	}
	if msg != nil {
		s.send(msg)
	}
}

func (s *session) refresh() { s.send(s.m.ask()) }

// press types keys: names in angle brackets, all else as text.
func (s *session) press(keys ...string) {
	named := map[string]tea.KeyPressMsg{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp}, "end": {Code: tea.KeyEnd},
		"backspace": {Code: tea.KeyBackspace}, "pgdown": {Code: tea.KeyPgDown}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	for _, k := range keys {
		if msg, ok := named[k]; ok {
			s.send(msg)
			continue
		}
		for _, r := range k {
			s.send(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// shows is the screen, which is never larger than the terminal.
func (s *session) shows() string {
	s.t.Helper()
	text := s.m.text()
	lines := strings.Split(text, "\n")
	if len(lines) > s.m.height {
		s.t.Errorf("%d lines in a terminal of %d:\n%s", len(lines), s.m.height, text)
	}
	for _, l := range lines {
		if n := ansi.StringWidth(l); n > s.m.width {
			s.t.Errorf("%d columns in a terminal of %d: %q", n, s.m.width, l)
		}
	}
	return text
}

func TestScreens(t *testing.T) {
	s := watching(t, three(), 100, 24, screen.Palette{})
	var b strings.Builder
	show := func(title string) { fmt.Fprintf(&b, "--- %s\n%s\n", title, s.shows()) }
	show("the list")
	s.press("down", "down")
	show("the third job is chosen")
	s.press("?")
	show("?")
	s.press("x", "enter")
	show("Enter opens a job")
	s.press("pgdown")
	show("Page Down")
	s.press("esc", "/mni")
	show("a filter is typed")
	s.press("enter")
	show("Enter keeps it")
	golden.Compare(t, "testdata/screens.txt", b.String())
}

func TestSorting(t *testing.T) {
	s := watching(t, three(), 120, 24, screen.Palette{})
	order := func() (names []string) {
		for _, v := range s.m.jobs() {
			names = append(names, strings.SplitN(string(v.Job), "-", 2)[0])
		}
		return names
	}
	for _, c := range []struct{ key, want string }{
		{"", "bert gpt mnist"}, {"5", "mnist bert gpt"}, {"5", "gpt bert mnist"}, {"3", "mnist bert gpt"}, {"8", "gpt mnist bert"}, {"1", "bert gpt mnist"}, {"9", "bert gpt mnist"},
	} {
		s.press(c.key)
		if got := strings.Join(order(), " "); got != c.want {
			t.Errorf("after %q: %s, want %s", c.key, got, c.want)
		}
	}
	s.press("/", "PYTHON", "backspace", "n")
	if len(order()) != 3 {
		t.Errorf("a filter by the command, whatever its case: %v", order())
	}
	s.press("zz")
	if !strings.Contains(s.shows(), `none of 3 jobs has "PYTHOnzz"`) {
		t.Error(s.shows())
	}
	s.press("esc")
	if len(order()) != 3 || s.m.typing {
		t.Errorf("Esc ends the filter: %v", order())
	}
	s.press("esc", "end")
	if s.m.chosen != "mnist-7f3a" {
		t.Errorf("End chooses %s", s.m.chosen)
	}
}

// TestNotConnected: nothing that was heard before is painted as if it were so now.
func TestNotConnected(t *testing.T) {
	from := three()
	s := watching(t, from, 100, 24, screen.Palette{On: true})
	if !strings.Contains(s.shows(), "\x1b[32mrunning") {
		t.Errorf("a live screen has colours: %q", s.shows())
	}
	from.lost = true
	s.refresh()
	text := s.shows()
	if !strings.HasPrefix(ansi.Strip(text), "not connected, last heard 14:02:11, trying again") {
		t.Errorf("it says %q", text)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if plain := ansi.Strip(line); plain != "" && line != "\x1b[2m"+plain+"\x1b[0m" {
			t.Errorf("a line that is not grey: %q", line)
		}
	}
	s.press("enter")
	if !strings.Contains(s.shows(), "asking for bert-1a2b") {
		t.Errorf("a job that cannot be asked for: %q", s.shows())
	}
	s.press("esc")
	from.lost = false
	s.refresh()
	if !strings.Contains(s.shows(), "\x1b[32mrunning") {
		t.Errorf("it is connected again: %q", s.shows())
	}
	from.seen.Silent = []string{events.ServiceRegistry}
	s.refresh()
	if text := s.shows(); strings.Contains(text, "\x1b[32m") || !strings.Contains(text, "no answer from registry: below is what they left") {
		t.Errorf("no registry answers: %q", text)
	}
	never := watching(t, &source{lost: true}, 100, 24, screen.Palette{})
	if !strings.HasPrefix(never.shows(), "not connected, never heard, trying again") {
		t.Error(never.shows())
	}
}

// TestAnySize: whatever the size, nothing is wider or higher than the terminal, and the job with
// the cursor is there.
func TestAnySize(t *testing.T) {
	from := three()
	for n := range 50 {
		v := from.seen.Jobs[1]
		v.JobView.Job = ident.JobID(fmt.Sprintf("another-%03d", n))
		from.seen.Jobs = append(from.seen.Jobs, v)
	}
	s := watching(t, from, 100, 24, screen.Palette{On: true})
	s.press("end", "up")
	for _, width := range []int{1, 20, 40, 79, 80, 200} {
		for _, height := range []int{1, 4, 10, 24, 80} {
			s.send(tea.WindowSizeMsg{Width: width, Height: height})
			if text := s.shows(); height >= 10 && width >= 40 && !strings.Contains(text, string(s.m.chosen)) {
				t.Errorf("%s is not shown in %d by %d:\n%s", s.m.chosen, width, height, text)
			}
			s.press("?")
			s.shows()
			s.press("x", "enter")
			s.shows()
			s.press("esc")
		}
	}
	from.seen.Jobs = from.seen.Jobs[:1]
	s.refresh()
	s.shows()
	s.press("down", "enter")
	from.seen.Jobs = nil
	s.refresh()
	s.send(tickMsg{})
	if !strings.Contains(s.shows(), "there is no job") {
		t.Errorf("a job that has gone while it is open:\n%s", s.shows())
	}
	s.press("esc", "down", "enter")
	if !strings.Contains(s.shows(), "no jobs that have not ended") {
		t.Error(s.shows())
	}
}

// TestWatchInATerminal: keys reach it, q ends it and Ctrl-C interrupts it.
func TestWatchInATerminal(t *testing.T) {
	for keys, want := range map[string]int{"?xq": 0, "\x03": exitcode.Interrupted} {
		user, tty := terminal.Open(t)
		shown := make(chan string, 1)
		go func() {
			var all strings.Builder
			buffer := make([]byte, 4096)
			typed := false
			for {
				n, err := user.Read(buffer)
				all.Write(buffer[:n])
				if err != nil {
					shown <- all.String()
					return
				}
				if !typed && strings.Contains(all.String(), "mnist-7f3a") {
					typed = true
					_, _ = user.WriteString(keys)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := Watch(ctx, Options{Source: three(), Every: time.Second, Now: func() time.Time { return noon }, In: tty, Out: tty})
		cancel()
		if got := exitcode.Of(err); got != want {
			t.Errorf("after %q it ends with %v", keys, err)
		}
		_ = tty.Close()
		text := <-shown
		if !strings.Contains(text, "\x1b[?1049h") || !strings.Contains(text, "\x1b[?1049l") {
			t.Errorf("it is not on a screen of its own: %q", text)
		}
	}
}
