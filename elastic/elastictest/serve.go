package elastictest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
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
	case wire.PathJoin:
		answer = h.join(r, token)
	case wire.PathChanges:
		answer = h.change(r, token, generation)
	case wire.PathPeers:
		rank, _ := strconv.Atoi(r.URL.Query().Get("rank"))
		if answer = h.peer(generation, rank); answer == nil {
			w.WriteHeader(http.StatusConflict)
			answer = wire.Error{Code: "fenced", Message: "that generation is over"}
		}
	case wire.PathReport:
		p := read[wire.Report](r)
		h.Update(func() { h.reported(token, p) })
	case wire.PathCommit:
		c := read[wire.CommitReport](r)
		h.Update(func() { h.Commits = append(h.Commits, c) })
	case wire.PathCheckpoint:
		c := read[wire.CheckpointRequest](r)
		h.Update(func() {
			h.Checkpoints = append(h.Checkpoints, c)
			if c.Bytes > h.Space {
				w.WriteHeader(http.StatusInsufficientStorage)
				answer = wire.Error{Code: "exhausted", Message: "there is no space"}
			}
		})
	case wire.PathDone:
		d := read[wire.DoneReport](r)
		h.Update(func() { h.Done[token] = d })
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

func (h *Hub) join(r *http.Request, token string) any {
	j := read[wire.JoinRequest](r)
	h.Update(func() {
		if !h.Alive[token] || (slices.Contains(h.Members, token) && j.Left < h.Generation) {
			return // dead, or a place is assigned already
		}
		if before, in := h.Joined[token]; in && before.Left == j.Left {
			j.Unsynced = j.Unsynced && before.Unsynced // a call that was given up may arrive late
		}
		h.Address[token] = j.Address
		h.Joined[token] = j
		h.Joins = append(h.Joins, j)
	})
	var a wire.Assignment
	if !h.Wait(r.Context(), pollTimeout, func() bool { return h.assign(token, j, &a) }) {
		return nil
	}
	return a
}

// assign answers a worker that waits; false = not yet.
func (h *Hub) assign(token string, j wire.JoinRequest, a *wire.Assignment) bool {
	rank := slices.Index(h.Members, token)
	switch {
	case h.Removed[token]: // also if the others have completed the training since
		a.Verdict = wire.Removed
	case len(h.Done) > 0:
		a.Verdict = wire.Over
	case rank >= 0 && h.Generation > j.Left:
		next := (rank + 1) % len(h.Members)
		*a = wire.Assignment{
			Verdict: wire.Assigned, Generation: h.Generation, Rank: rank, World: len(h.Members),
			Token: "secret", Peers: map[int]string{next: h.Address[h.Members[next]]},
			Trace: Traceparent(h.Generation, rank),
		}
	case j.Unsynced && h.Generation > j.Holders && h.Generation > 0:
		*a = wire.Assignment{
			Verdict: wire.Prefetch, Generation: h.Generation, Rank: -1, World: len(h.Members),
			Token: wire.StateToken("secret"), Peers: h.holders(),
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

// Traceparent is what a member is told in a generation.
func Traceparent(generation uint64, rank int) string {
	return fmt.Sprintf("00-%032x-%016x-01", generation, rank+1)
}

func (h *Hub) change(r *http.Request, token string, generation uint64) any {
	c := wire.Change{Generation: generation}
	if !h.Wait(r.Context(), pollTimeout, func() bool {
		leaving, leaves := h.Preempted[token]
		switch {
		case generation != h.Generation:
			return false
		case h.Lost >= 0:
			c.Kind, c.Rank, c.Reason = wire.ChangeLost, h.Lost, "its node is gone"
		case h.Stopping:
			c.Kind = wire.ChangeStop
		case h.Withdrawn:
			c.Kind = wire.ChangeUndone
		case h.Planned:
			c.Kind = wire.ChangePlanned
		case leaves:
			c.Kind, c.Reason, c.Until = wire.ChangeLeaving, leaving.Reason, leaving.Until
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
	if generation != h.Generation || rank >= len(h.Members) {
		return nil
	}
	return wire.Peer{Rank: rank, Address: h.Address[h.Members[rank]]}
}

func (h *Hub) reported(token string, p wire.Report) {
	if p.Slowest != nil {
		h.Slowest[token] = *p.Slowest
	}
	if p.First == nil {
		return
	}
	if h.FirstSteps[p.Generation] == nil {
		h.FirstSteps[p.Generation] = map[string]wire.Report{}
	}
	h.FirstSteps[p.Generation][token] = p
}
