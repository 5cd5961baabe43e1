package job

import (
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
)

// saidKept is of how many generations the single words are kept: reports come late by one round or two.
const saidKept = 4

// Words of a member of a generation. Nobody waits for anybody's: they are counted, and decisions are made from what ended.
const (
	saidNothing = '.'
	saidReady   = 'r'
	saidSuccess = 's'
	saidFailure = 'f'
)

// Said is the newest word of each member of a generation, by rank.
type Said struct {
	Generation events.Generation `json:"generation"`
	Words      string            `json:"words"`
}

// listen begins the account of a generation with what its members have said before its seal was heard.
func (t *turn) listen(b events.RoundSealed) {
	t.Said = append(t.Said, Said{b.Generation, strings.Repeat(string(saidNothing), len(b.Members))})
	if over := len(t.Said) - saidKept; over > 0 {
		t.Said = slices.Clone(t.Said[over:])
	}
	for _, m := range b.Members {
		if w := t.worker(m.Place); w != nil && w.Incarnation == m.Incarnation {
			if word, ok := word(w.State); ok {
				t.say(w.WorkerRef, m.Rank, word)
			}
		}
	}
}

// word is what a worker's state says.
func word(s events.WorkerState) (rune, bool) {
	switch s {
	case events.WorkerStateReady, events.WorkerStateDone:
		return saidReady, true
	case events.WorkerStateSucceeded:
		return saidSuccess, true
	case events.WorkerStateFailed, events.WorkerStateLost:
		return saidFailure, true
	}
	return saidNothing, false
}

// say counts the newest word of a life for the generation that it speaks of. A repeat counts once. READY after an end is a
// late one; an end replaces READY; a success that was taken for a loss replaces that. A life that was no member of the
// generation counts for nothing, whatever rank it claims. rank is a hint, -1 = unknown.
func (t *turn) say(r events.WorkerRef, rank int, word rune) {
	i := slices.IndexFunc(t.Said, func(s Said) bool { return s.Generation == r.Generation })
	g := t.generation(r.Generation)
	if i < 0 || g == nil {
		return
	}
	if rank = seatOf(g.Members, r, rank); rank < 0 || rank >= len(t.Said[i].Words) {
		return
	}
	words := []byte(t.Said[i].Words)
	old := rune(words[rank])
	switch {
	case old == word, old == saidSuccess, word == saidReady && old != saidNothing:
		return
	}
	words[rank] = byte(word)
	t.Said[i].Words = string(words)
	*count(&g.Reported, old)--
	*count(&g.Reported, word)++
}

// zombie tells whether a READY comes of a life that has not the rank it claims: its generation is known, and is another one's.
func (t *turn) zombie(b events.WorkerReady) bool {
	g := t.generation(b.Generation)
	return g != nil && len(g.Members) > 0 && seatOf(g.Members, b.WorkerRef, b.Rank) != b.Rank
}

// count is the figure of a word.
func count(r *events.Reported, word rune) *int {
	switch word {
	case saidReady:
		return &r.Ready
	case saidSuccess:
		return &r.Success
	case saidFailure:
		return &r.Failure
	}
	return new(int) // silence is not counted
}

// seatOf returns the rank of a life among members, -1 if it is none of them.
func seatOf(ms []events.Member, r events.WorkerRef, rank int) int {
	its := func(m events.Member) bool { return m.Place == r.Place && m.Incarnation == r.Incarnation }
	if rank >= 0 && rank < len(ms) && its(ms[rank]) {
		return rank
	}
	return slices.IndexFunc(ms, its)
}

// generation returns the history's entry, or nil.
func (t *turn) generation(n events.Generation) *events.GenerationView {
	g := t.View.Generations
	i, found := slices.BinarySearchFunc(g, n, byGeneration)
	if !found {
		return nil
	}
	return &g[i]
}

func byGeneration(v events.GenerationView, n events.Generation) int {
	return int(v.Generation) - int(n)
}
