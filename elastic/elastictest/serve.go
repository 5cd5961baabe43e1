package elastictest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

const pollTimeout = 300 * time.Millisecond

// ServeHTTP is the worker API of all agents.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	h.mu.Lock()
	refused := h.Refuse > 0
	if refused {
		h.Refuse--
	}
	h.mu.Unlock()
	if refused {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	var answer any
	switch generation, _ := strconv.ParseUint(r.URL.Query().Get("generation"), 10, 64); r.URL.Path {
	case workerprotocol.PathJoin:
		answer = h.join(r, token)
	case workerprotocol.PathChanges:
		answer = h.change(r, token, generation)
	case workerprotocol.PathPeers:
		rank, _ := strconv.Atoi(r.URL.Query().Get("rank"))
		if answer = h.peer(generation, rank); answer == nil {
			w.WriteHeader(http.StatusConflict)
			answer = workerprotocol.Error{Code: "fenced", Message: "that generation is over"}
		}
	case workerprotocol.PathReport:
		p := read[workerprotocol.Report](r)
		h.record(token, func() { h.reported(token, p) })
	case workerprotocol.PathCommit:
		c := read[workerprotocol.CommitReport](r)
		h.record(token, func() {
			if c.Commit.Generation > 0 {
				h.Commits = append(h.Commits, c)
			}
			if c.Redundancy != nil {
				h.Redundancies = append(h.Redundancies, *c.Redundancy)
			}
		})
	case workerprotocol.PathCheckpoint:
		c := read[workerprotocol.CheckpointRequest](r)
		h.record(token, func() {
			h.Checkpoints = append(h.Checkpoints, c)
			if c.Bytes > h.Space {
				w.WriteHeader(http.StatusInsufficientStorage)
				answer = workerprotocol.Error{Code: "exhausted", Message: "there is no space"}
			}
		})
	case workerprotocol.PathDone:
		d := read[workerprotocol.DoneReport](r)
		h.record(token, func() { h.Done[token] = d })
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func read[T any](r *http.Request) (v T) {
	_ = json.NewDecoder(r.Body).Decode(&v)
	return v
}

// record calls f under the lock, but not for a worker that has ended: a call that it gave up may
// arrive when the test reads the results already.
func (h *Hub) record(token string, f func()) {
	h.Update(func() {
		if !h.ended[token] {
			f()
		}
	})
}

func (h *Hub) join(r *http.Request, token string) any {
	j := read[workerprotocol.JoinRequest](r)
	h.Update(func() {
		if !h.Alive[token] || h.ended[token] || (slices.Contains(h.Members, token) && j.Left < h.Generation) {
			return // dead, or a place is assigned already
		}
		if before, in := h.Joined[token]; in && before.Left == j.Left {
			j.Unsynced = j.Unsynced && before.Unsynced // a call that was given up may arrive late
		}
		h.Address[token] = j.Address
		h.Joined[token] = j
		h.Joins = append(h.Joins, j)
	})
	var a workerprotocol.Assignment
	if !h.Wait(r.Context(), pollTimeout, func() bool { return h.assign(token, j, &a) }) {
		return nil
	}
	return a
}

// assign answers a worker that waits; false = not yet.
func (h *Hub) assign(token string, j workerprotocol.JoinRequest, a *workerprotocol.Assignment) bool {
	rank := slices.Index(h.participants(), token)
	switch {
	case h.ended[token]:
		return false
	case h.Removed[token]: // also if the others have completed the training since
		a.Verdict = workerprotocol.Removed
	case len(h.Done) > 0:
		a.Verdict = workerprotocol.Over
	case rank >= 0 && h.Generation > j.Left:
		next := (rank + 1) % len(h.Members)
		*a = workerprotocol.Assignment{
			Verdict: workerprotocol.Assigned, Generation: h.Generation, Rank: rank, World: len(h.Members), CrossRank: rank, CrossSize: len(h.Members),
			Spares: len(h.Spares), Token: "secret", Peers: map[int]string{next: h.Address[h.Members[next]]},
			Trace: Traceparent(h.Generation, rank),
		}
	case j.Unsynced && h.Generation > j.Holders && h.Generation > 0:
		*a = workerprotocol.Assignment{
			Verdict: workerprotocol.Prefetch, Generation: h.Generation, Rank: -1, World: len(h.Members),
			Token: workerprotocol.StateToken("secret"), Peers: h.holders(),
		}
		if h.Mislead != nil {
			h.Mislead(a)
		}
		h.Prefetches = append(h.Prefetches, *a)
	default:
		return false
	}
	return true
}

// participants are those who have a rank in the generation, or one behind the members' while they
// give.
func (h *Hub) participants() []string { return slices.Concat(h.Members, h.Spares) }

// Traceparent is what a member is told in a generation.
func Traceparent(generation uint64, rank int) string {
	return fmt.Sprintf("00-%032x-%016x-01", generation, rank+1)
}

func (h *Hub) change(r *http.Request, token string, generation uint64) any {
	c := workerprotocol.Change{Generation: generation}
	if !h.Wait(r.Context(), pollTimeout, func() bool {
		leaving, leaves := h.Preempted[token]
		switch {
		case generation != h.Generation:
			return false
		case h.Lost >= 0:
			c.Kind, c.Rank, c.Reason = workerprotocol.ChangeLost, h.Lost, "its node is gone"
		case h.Stopping:
			c.Kind = workerprotocol.ChangeStop
		case h.Withdrawn:
			c.Kind = workerprotocol.ChangeUndone
		case h.Planned:
			c.Kind, c.Place = workerprotocol.ChangePlanned, workerprotocol.PlaceStays
			if h.Removed[token] {
				c.Place = workerprotocol.PlaceLeaves
			}
			if h.Placeless {
				c.Place = ""
			}
		case leaves:
			c.Kind, c.Reason, c.Until = workerprotocol.ChangeLeaving, leaving.Reason, leaving.Until
		default:
			return false
		}
		return true
	}) {
		return nil
	}
	return c
}

func (h *Hub) peer(generation uint64, rank int) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.participants()
	if generation != h.Generation || rank >= len(all) {
		return nil
	}
	return workerprotocol.Peer{Rank: rank, Address: h.Address[all[rank]]}
}

func (h *Hub) reported(token string, p workerprotocol.Report) {
	if p.Slowest != nil {
		h.Slowest[token] = *p.Slowest
	}
	if p.First == nil {
		return
	}
	if h.FirstSteps[p.Generation] == nil {
		h.FirstSteps[p.Generation] = map[string]workerprotocol.Report{}
	}
	h.FirstSteps[p.Generation][token] = p
}
