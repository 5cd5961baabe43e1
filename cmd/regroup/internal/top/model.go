package top

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Source is where the live view gets what it shows. Several calls may be under way.
type Source interface {
	Overview(ctx context.Context) (Overview, error)
	Job(ctx context.Context, id ident.JobID) (view.Job, error)
	Lines(ctx context.Context, id ident.JobID) ([]view.Line, error) // the newest of its output, the oldest first
}

// Options are those of the live view.
type Options struct {
	Source  Source
	Every   time.Duration // between two frames
	Palette screen.Palette
	Now     func() time.Time
	In      *os.File // a terminal whose keys are read; nil = there are none
	Out     io.Writer
}

// answerWithin is how long a frame may take; a server that takes longer counts as not connected.
const answerWithin = 5 * time.Second

// Watch shows the live view until q is pressed. Ctrl-C and the end of ctx are an interrupt. The
// terminal is then as it was before.
func Watch(ctx context.Context, o Options) error {
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(o.Out), tea.WithoutSignalHandler(), tea.WithInput(nil)}
	if o.In != nil {
		options = append(options, tea.WithInput(o.In))
	}
	commands, cancel := context.WithCancel(ctx)
	defer cancel() // those that are under way end
	end, err := tea.NewProgram(newModel(commands, o), options...).Run()
	if m, ok := end.(model); ctx.Err() != nil || ok && m.interrupted {
		return &exitcode.Error{Code: exitcode.Interrupted}
	}
	if errors.Is(err, tea.ErrProgramKilled) {
		return context.Cause(ctx)
	}
	return err
}

// model is what the view shows; each message makes a new one.
type model struct {
	ctx context.Context //nolint:containedctx // that of the program: a command of bubbletea has none
	o   Options

	width, height int
	seen          Overview
	heard         time.Time // when seen came; zero = never
	lost          bool      // the newest question was not answered
	before        map[ident.JobID]progress
	rates         map[ident.JobID]float64

	sort        int // index in header
	reverse     bool
	filter      string
	typing      bool // keys go to the filter
	help        bool
	chosen      ident.JobID // the job with the cursor
	open        *detail     // nil = the list
	interrupted bool
}

// detail is one job that is open.
type detail struct {
	id     ident.JobID
	job    *view.Job // nil = it has not come yet
	gone   bool      // there is no such job any more
	lines  []view.Line
	known  bool // lines have come
	scroll int
}

type (
	overviewMsg struct {
		seen Overview
		err  error
	}
	jobMsg struct {
		id  ident.JobID
		job view.Job
		err error
	}
	linesMsg struct {
		id    ident.JobID
		lines []view.Line
		err   error
	}
	tickMsg struct{}
)

func newModel(ctx context.Context, o Options) model {
	return model{ctx: ctx, o: o, before: map[ident.JobID]progress{}, rates: map[ident.JobID]float64{}}
}

// Init implements tea.Model.
func (m model) Init() tea.Cmd { return m.ask }

// tick waits for the next frame.
func (m model) tick() tea.Msg {
	wait.Sleep(m.ctx, m.o.Every)
	return tickMsg{}
}

// ask gets the next frame.
func (m model) ask() tea.Msg {
	ctx, cancel := context.WithTimeout(m.ctx, answerWithin)
	defer cancel()
	seen, err := m.o.Source.Overview(ctx)
	return overviewMsg{seen, err}
}

// askJob gets the job that is open, and its output.
func (m model) askJob() tea.Cmd {
	if m.open == nil {
		return nil
	}
	id := m.open.id
	return tea.Batch(
		func() tea.Msg {
			ctx, cancel := context.WithTimeout(m.ctx, answerWithin)
			defer cancel()
			job, err := m.o.Source.Job(ctx, id)
			return jobMsg{id, job, err}
		},
		func() tea.Msg {
			lines, err := m.o.Source.Lines(m.ctx, id)
			return linesMsg{id, lines, err}
		},
	)
}

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case overviewMsg:
		if m.lost = msg.err != nil; !m.lost {
			m.seen, m.heard = msg.seen, msg.seen.At
			measure(m.seen, m.before, m.rates)
		}
		return m, m.tick
	case tickMsg:
		return m, tea.Batch(m.ask, m.askJob())
	case jobMsg:
		if m.open != nil && m.open.id == msg.id {
			d := *m.open
			switch {
			case msg.err == nil:
				d.job = &msg.job
			case exitcode.Of(msg.err) == exitcode.NotFound:
				d.gone = true
			}
			m.open = &d
		}
	case linesMsg:
		if m.open != nil && m.open.id == msg.id && msg.err == nil {
			d := *m.open
			d.lines, d.known = msg.lines, true
			m.open = &d
		}
	case tea.KeyPressMsg:
		return m.key(msg)
	}
	return m, nil
}

// live reports whether what is shown is how things are: the server and the registry answer.
func (m model) live() bool {
	return !m.lost && !m.heard.IsZero() && !slices.Contains(m.seen.Silent, events.ServiceRegistry)
}

// palette has no colours for what is not live.
func (m model) palette() screen.Palette {
	if !m.live() {
		return screen.Palette{}
	}
	return m.o.Palette
}

// now is the time that ages are measured to: of what is not live, when it was heard.
func (m model) now() time.Time {
	if m.lost {
		return m.heard
	}
	return m.o.Now()
}

// jobs are those that the filter lets through, sorted.
func (m model) jobs() []view.Job {
	all := slices.DeleteFunc(slices.Clone(m.seen.Jobs), func(v view.Job) bool {
		text := strings.Join(append(jobCells(screen.Palette{}, v.JobView, m.rates, m.seen.At), v.Spec.Command...), " ")
		return !strings.Contains(strings.ToLower(text), strings.ToLower(m.filter))
	})
	slices.SortStableFunc(all, func(a, b view.Job) int {
		n := m.compare(a, b)
		if m.reverse {
			return -n
		}
		return n
	})
	return all
}

// compare orders jobs by the column of the sort; jobs that are alike in it stay in their order. By
// time the newest is first, and the first column is the order in which they are given.
func (m model) compare(a, b view.Job) int {
	switch header[m.sort] {
	case "STATE":
		return cmp.Compare(a.State, b.State)
	case "WORKERS":
		return cmp.Compare(view.Members(b.JobView), view.Members(a.JobView))
	case "GEN":
		return cmp.Compare(b.Generation, a.Generation)
	case "STEP":
		return cmp.Compare(b.Step, a.Step)
	case "STEPS/S":
		return cmp.Compare(m.rates[b.Job], m.rates[a.Job])
	case "LAST INCIDENT":
		return cmp.Compare(lastIncident(a.JobView), lastIncident(b.JobView))
	case "AGE":
		return b.Submitted.Compare(a.Submitted)
	}
	return cmp.Compare(a.Job, b.Job)
}

// cursor is the index of the chosen job; 0 if it has gone.
func (m model) cursor(all []view.Job) int {
	return max(0, slices.IndexFunc(all, func(v view.Job) bool { return v.Job == m.chosen }))
}
