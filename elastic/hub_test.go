package elastic

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// hub plays agents and rendezvous for the workers of one job, told apart by their tokens: it seals a generation when
// all who are alive have asked for it, and lets newcomers in at a planned change.
type hub struct {
	socket string

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when something changes
	alive      map[string]bool
	joined     map[string]wire.JoinRequest
	generation uint64
	start      int      // workers of the first generation
	members    []string // by rank
	address    map[string]string
	planned    bool
	undone     bool // what was planned is off
	stopping   bool
	lost       int // rank that is reported lost, -1 = none
	done       map[string]wire.DoneReport
	firsts     map[uint64]map[string]wire.Report
	commits    []wire.CommitReport
	joins      []wire.JoinRequest
	mislead    func(*wire.Assignment) // changes what a newcomer is told; nil = nothing
	warmUps    []wire.Assignment
	refuse     int // answers 503 to so many calls
	onSeal     func(generation uint64, members []string)
}

func newHub(t *testing.T, start int) *hub {
	h := &hub{
		socket: filepath.Join(t.TempDir(), "agent.sock"), changed: make(chan struct{}), alive: map[string]bool{},
		joined: map[string]wire.JoinRequest{}, start: start, address: map[string]string{}, lost: -1,
		done: map[string]wire.DoneReport{}, firsts: map[uint64]map[string]wire.Report{},
	}
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return h
}

// touch wakes everybody who waits; the caller holds mu.
func (h *hub) touch() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// update changes the hub and seals what can be sealed.
func (h *hub) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.seal()
	h.touch()
}

func (h *hub) seal() {
	newcomer := false
	for token := range h.alive {
		j, in := h.joined[token]
		newcomer = newcomer || (in && j.Left == 0 && !j.Cold && !slices.Contains(h.members, token))
	}
	if h.generation > 0 && newcomer {
		h.planned = true
	}
	if len(h.joined) == 0 || len(h.done) > 0 || (h.generation == 0 && len(h.joined) < h.start) {
		return
	}
	for token := range h.alive {
		if _, in := h.joined[token]; !in && (h.generation == 0 || slices.Contains(h.members, token)) {
			return
		}
	}
	next := make([]string, 0, len(h.joined))
	for token, j := range h.joined {
		if !j.Cold || h.generation == 0 || !h.survivors() {
			next = append(next, token)
		}
	}
	if len(next) == 0 {
		return
	}
	slices.SortFunc(next, func(a, b string) int {
		return cmp.Or(cmp.Compare(seniority(h.members, a), seniority(h.members, b)), cmp.Compare(a, b))
	})
	h.generation++
	h.members, h.planned, h.lost = next, false, -1
	for _, token := range next {
		delete(h.joined, token)
	}
	if h.onSeal != nil {
		h.onSeal(h.generation, next)
	}
}

// survivors tells whether anybody who holds the state is there.
func (h *hub) survivors() bool {
	return slices.ContainsFunc(h.members, func(token string) bool { return h.alive[token] })
}

// holders are the members that a newcomer is told of.
func (h *hub) holders() map[int]string {
	peers := map[int]string{}
	for r, token := range h.members {
		peers[r] = h.address[token]
	}
	return peers
}

func seniority(members []string, token string) int {
	if i := slices.Index(members, token); i >= 0 {
		return i
	}
	return len(members)
}

// wait returns when f, called under the lock, is true; false after the poll's end.
func (h *hub) wait(ctx context.Context, within time.Duration, f func() bool) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	for {
		h.mu.Lock()
		ok, changed := f(), h.changed
		h.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-t.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

const poll = 300 * time.Millisecond

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	h.mu.Lock()
	refused := h.refuse > 0
	if refused {
		h.refuse--
	}
	h.mu.Unlock()
	if refused {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	generation, _ := strconv.ParseUint(r.URL.Query().Get("generation"), 10, 64)
	switch r.URL.Path {
	case wire.PathJoin:
		var j wire.JoinRequest
		_ = json.NewDecoder(r.Body).Decode(&j)
		var a wire.Assignment
		h.update(func() {
			if !h.alive[token] || (slices.Contains(h.members, token) && j.Left < h.generation) {
				return // dead, or it only has to be told
			}
			if before, in := h.joined[token]; in && before.Left == j.Left {
				j.Cold = j.Cold && before.Cold // of a call that was given up
			}
			h.address[token] = j.Address
			h.joined[token] = j
			h.joins = append(h.joins, j)
		})
		ok := h.wait(r.Context(), poll, func() bool {
			rank := slices.Index(h.members, token)
			switch {
			case len(h.done) > 0:
				a = wire.Assignment{Verdict: wire.Over}
			case rank >= 0 && h.generation > j.Left:
				a = wire.Assignment{
					Verdict: wire.Assigned, Generation: h.generation, Rank: rank, World: len(h.members),
					Token: "secret", Peers: map[int]string{},
				}
				next := (rank + 1) % len(h.members)
				a.Peers[next] = h.address[h.members[next]]
			case j.Cold && h.generation > j.Holders && h.generation > 0:
				a = wire.Assignment{
					Verdict: wire.WarmUp, Generation: h.generation, Rank: -1, World: len(h.members),
					Token: wire.StateToken("secret"), Peers: h.holders(),
				}
				if h.mislead != nil {
					h.mislead(&a)
				}
				h.warmUps = append(h.warmUps, a)
			default:
				return false
			}
			return true
		})
		if !ok {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(a)
	case wire.PathChanges:
		c := wire.Change{Generation: generation}
		if !h.wait(r.Context(), poll, func() bool {
			switch {
			case generation != h.generation:
				return false
			case h.lost >= 0:
				c.Kind, c.Rank, c.Reason = wire.ChangeLost, h.lost, "its node is gone"
			case h.stopping:
				c.Kind = wire.ChangeStop
			case h.undone:
				c.Kind = wire.ChangeUndone
			case h.planned:
				c.Kind = wire.ChangePlanned
			default:
				return false
			}
			return true
		}) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(c)
	case wire.PathPeers:
		rank, _ := strconv.Atoi(r.URL.Query().Get("rank"))
		h.mu.Lock()
		defer h.mu.Unlock()
		if generation != h.generation || rank >= len(h.members) {
			w.WriteHeader(http.StatusConflict)
			answer(wire.Error{Code: "fenced", Message: "that generation is over"})
			return
		}
		answer(wire.Peer{Rank: rank, Address: h.address[h.members[rank]]})
	case wire.PathReport:
		var p wire.Report
		_ = json.NewDecoder(r.Body).Decode(&p)
		if p.First != nil {
			h.update(func() {
				if h.firsts[p.Generation] == nil {
					h.firsts[p.Generation] = map[string]wire.Report{}
				}
				h.firsts[p.Generation][token] = p
			})
		}
		w.WriteHeader(http.StatusNoContent)
	case wire.PathCommit:
		var c wire.CommitReport
		_ = json.NewDecoder(r.Body).Decode(&c)
		h.update(func() { h.commits = append(h.commits, c) })
		w.WriteHeader(http.StatusNoContent)
	case wire.PathDone:
		var d wire.DoneReport
		_ = json.NewDecoder(r.Body).Decode(&d)
		h.update(func() { h.done[token] = d })
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
