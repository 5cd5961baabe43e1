package queue

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// Timeline writes the phases of named operations to a file, in the trace event format of Chrome: a
// row ("process") for each name, like Horovod's timeline. The zero value writes nothing.
type Timeline struct {
	on atomic.Bool // without a timeline, operations pay nothing

	mu     sync.Mutex
	file   *os.File
	out    *bufio.Writer
	begin  time.Time
	rows   map[string]int
	open   map[string]string // by name, the phase that it is in
	cycles bool
	err    error
}

// Start begins a file. It ends the current one first.
func (t *Timeline) Start(path string, markCycles bool) error {
	_ = t.Stop() // whatever the result of the previous one
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("%w: the timeline cannot be written: %w", collective.ErrInvalid, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file, t.out, t.begin, t.cycles, t.err = f, bufio.NewWriter(f), time.Now(), markCycles, nil
	t.rows, t.open = map[string]int{}, map[string]string{}
	_, t.err = t.out.WriteString("[\n")
	t.on.Store(true)
	return t.err
}

// Stop ends the file, and returns the error of writing it.
func (t *Timeline) Stop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	t.on.Store(false)
	for name := range t.open {
		t.endPhase(name)
	}
	// The last event must not have a comma behind it.
	t.write(map[string]any{"name": "end of the timeline", "ph": "i", "s": "g", "pid": 0, "ts": t.now()}, "\n]\n")
	t.err = errors.Join(t.err, t.out.Flush(), t.file.Close())
	t.file = nil
	return t.err
}

func (t *Timeline) now() float64 { return float64(time.Since(t.begin)) / float64(time.Microsecond) }

// Observe writes a phase; it is for Options.Observe.
func (t *Timeline) Observe(e Event) {
	if !t.on.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return
	}
	method := strings.ToUpper(e.Method.String())
	switch e.Phase {
	case Submitted:
		t.endPhase(e.Name)
		t.beginPhase(e.Name, "NEGOTIATE_"+method, nil)
	case Began:
		t.endPhase(e.Name)
		t.beginPhase(e.Name, method, map[string]any{"packed": e.Packed})
	case Ended:
		t.endPhase(e.Name)
	case CycleBegan:
		if t.cycles {
			t.write(map[string]any{"name": "CYCLE_START", "ph": "i", "s": "g", "pid": 0, "ts": t.now()}, ",\n")
		}
	}
}

func (t *Timeline) beginPhase(name, phase string, args map[string]any) {
	row, known := t.rows[name]
	if !known {
		row = len(t.rows) + 1
		t.rows[name] = row
		t.write(map[string]any{"name": "process_name", "ph": "M", "pid": row, "args": map[string]any{"name": name}}, ",\n")
	}
	t.open[name] = phase
	e := map[string]any{"name": phase, "ph": "B", "pid": row, "tid": 0, "ts": t.now()}
	if args != nil {
		e["args"] = args
	}
	t.write(e, ",\n")
}

func (t *Timeline) endPhase(name string) {
	if _, begun := t.open[name]; begun {
		delete(t.open, name)
		t.write(map[string]any{"ph": "E", "pid": t.rows[name], "tid": 0, "ts": t.now()}, ",\n")
	}
}

// write adds an event, and flushes soon, so that a process that dies leaves most of the file.
func (t *Timeline) write(event map[string]any, suffix string) {
	b, err := json.Marshal(event)
	if err == nil {
		_, err = fmt.Fprintf(t.out, "%s%s", b, suffix)
	}
	if err == nil {
		err = t.out.Flush()
	}
	if t.err == nil {
		t.err = err
	}
}
