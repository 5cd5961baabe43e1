package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// action is a step of a written scenario: at a point in time, or after the first line of the log
// that contains certain words.
type action struct {
	line  string
	at    time.Duration // or the time after the words
	words string        // empty = at
	do    func(w *world)
}

// parseAction reads `at 2s kill node-a/0` or `when "sealed #2 g1" +100ms kill node-a/0`.
func parseAction(line string) (a action, err error) {
	a.line = line
	rest := strings.TrimPrefix(line, "at ")
	if r, when := strings.CutPrefix(line, `when "`); when {
		var ok bool
		if a.words, rest, ok = strings.Cut(r, `" `); !ok {
			return a, fmt.Errorf(`want: when "WORDS" [+TIME] VERB`)
		}
		if !strings.HasPrefix(rest, "+") {
			rest = "+0s " + rest
		}
	}
	at, what, _ := strings.Cut(strings.TrimPrefix(rest, "+"), " ")
	if a.at, err = time.ParseDuration(at); err != nil {
		return a, err
	}
	words := strings.Fields(what)
	if len(words) == 0 {
		return a, fmt.Errorf("no verb")
	}
	v, ok := verbs[words[0]]
	if !ok {
		return a, fmt.Errorf("there is no verb %s", words[0])
	}
	given := operands{words: words[1:]}
	if a.do = v(&given); given.err == nil && len(given.words) > 0 {
		given.err = fmt.Errorf("%q is too much", given.words)
	}
	return a, given.err
}

// operands are the words after a verb; the first error is kept.
type operands struct {
	words []string
	err   error
}

func (o *operands) next(what string) string {
	if len(o.words) == 0 {
		o.fail("%s is missing", what)
		return ""
	}
	w := o.words[0]
	o.words = o.words[1:]
	return w
}

func (o *operands) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// word consumes a word if it is the next one.
func (o *operands) word(w string) bool {
	if len(o.words) > 0 && o.words[0] == w {
		o.words = o.words[1:]
		return true
	}
	return false
}

// span reads an optional `for TIME`.
func (o *operands) span() time.Duration {
	if !o.word("for") {
		return 0
	}
	return o.time()
}

func (o *operands) time() time.Duration {
	d, err := time.ParseDuration(o.next("a time"))
	if err != nil {
		o.fail("%w", err)
	}
	return d
}

func (o *operands) number() int {
	n, err := strconv.Atoi(o.next("a number"))
	if err != nil {
		o.fail("%w", err)
	}
	return n
}

// place reads NODE/SLOT.
func (o *operands) place() events.Place {
	w := o.next("a place")
	node, slot, _ := strings.Cut(w, "/")
	n, err := strconv.Atoi(slot)
	if err != nil {
		o.fail("%q is no place: want NODE/SLOT", w)
	}
	return events.Place{Node: events.NodeID(node), Slot: events.Slot(n)}
}

// arm schedules the actions of a scenario.
func (w *world) arm(actions []action) {
	for _, a := range actions {
		if a.words == "" {
			w.at(epoch.Add(a.at), func() { w.perform(a) })
			continue
		}
		w.awaited = append(w.awaited, a)
	}
}

func (w *world) perform(a action) {
	w.logf("--- %s", a.line)
	a.do(w)
}

// trigger performs the actions that wait for words of this line.
func (w *world) trigger(line string) {
	for i := 0; i < len(w.awaited); {
		a := w.awaited[i]
		if strings.HasPrefix(line, "---") || !strings.Contains(line, a.words) {
			i++
			continue
		}
		w.awaited = slices.Delete(w.awaited, i, i+1)
		if a.at == 0 {
			w.perform(a)
			i = 0
			continue
		}
		w.after(a.at, func() { w.perform(a) })
	}
}

// expect is an expectation of a written scenario: how many lines of the log contain certain words.
type expect struct {
	line        string
	least, most int
	words       string
}

// parseExpect reads `expect 1 "sealed #4 g2"`, `expect 1-3 "..."` or `expect no "..."`.
func parseExpect(line string) (e expect, err error) {
	e.line = line
	count, words, _ := strings.Cut(strings.TrimPrefix(line, "expect "), " ")
	if e.words, err = strconv.Unquote(words); err != nil {
		return e, fmt.Errorf(`want: expect HOW-OFTEN "WORDS"`)
	}
	least, most, several := strings.Cut(strings.Replace(count, "no", "0", 1), "-")
	if !several {
		most = least
	}
	if e.least, err = strconv.Atoi(least); err == nil {
		e.most, err = strconv.Atoi(most)
	}
	return e, err
}

// unmet returns the expectations that a log does not meet.
func unmet(expects []expect, log []string) (out []string) {
	for _, e := range expects {
		n := 0
		for _, line := range log {
			if !strings.Contains(line, "--- ") && strings.Contains(line, e.words) {
				n++
			}
		}
		if n < e.least || n > e.most {
			out = append(out, fmt.Sprintf("%s: it was said %d times", e.line, n))
		}
	}
	return out
}
