package elastictest

import (
	"context"
	"slices"
	"time"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// notify wakes all waiters; the caller holds mu.
func (h *Hub) notify() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Update calls f under the lock, and then seals the next generation if it is complete.
func (h *Hub) Update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.seal()
	h.notify()
}

func (h *Hub) seal() {
	members, more := 0, 0
	newcomer := false
	for token := range h.Alive {
		j, in := h.Joined[token]
		switch {
		case slices.Contains(h.Members, token):
			members++
		case in && !j.Unsynced:
			more++
			newcomer = newcomer || j.Left == 0
		}
	}
	if h.Generation > 0 && newcomer && h.whole(members+more) > members {
		h.Planned = true
	}
	if len(h.Joined) == 0 || len(h.Done) > 0 || (h.Generation == 0 && len(h.Joined) < h.Size) {
		return
	}
	for token := range h.Alive {
		if _, in := h.Joined[token]; !in && !h.Removed[token] && (h.Generation == 0 || slices.Contains(h.Members, token)) {
			return
		}
	}
	next := make([]string, 0, len(h.Joined))
	for token, j := range h.Joined {
		if h.Removed[token] {
			continue
		}
		if !j.Unsynced || h.Generation == 0 || !h.survivors() {
			next = append(next, token)
		}
	}
	n := h.whole(len(next))
	if n == 0 {
		return
	}
	next = inOrder(next, h.Members, n)
	h.Generation++
	h.Members, h.Planned, h.Lost = next[:n:n], false, -1
	h.Spares = slices.DeleteFunc(next[n:], func(token string) bool { return h.Joined[token].Commit == workerprotocol.Commit{} })
	for _, token := range slices.Concat(h.Members, h.Spares) {
		delete(h.Joined, token)
	}
	if h.OnSeal != nil {
		h.OnSeal(h.Generation, h.Members)
	}
}

func (h *Hub) whole(n int) int { return n - n%max(h.MultipleOf, 1) }

func (h *Hub) survivors() bool {
	return slices.ContainsFunc(h.Members, func(token string) bool { return h.Alive[token] })
}

func (h *Hub) holders() map[int]string {
	peers := map[int]string{}
	for r, token := range h.Members {
		peers[r] = h.Address[token]
	}
	return peers
}

// inOrder returns workers in the order of their ranks, as the rendezvous gives them: members of the
// generation before keep theirs; of the others those that are among the first n take the ranks of
// members that are gone, but not rank 0, and the rest follow.
func inOrder(workers, before []string, n int) (order []string) {
	var more []string
	for _, token := range slices.Sorted(slices.Values(workers)) {
		if !slices.Contains(before, token) {
			more = append(more, token)
		}
	}
	stay := len(workers) - len(more)
	free := more[:min(max(n-stay, 0), len(more))]
	for r, token := range before {
		if !slices.Contains(workers, token) {
			continue
		}
		for len(free) > 0 && 0 < len(order) && len(order) < r {
			order, free, more = append(order, free[0]), free[1:], more[1:]
		}
		order = append(order, token)
	}
	return append(order, more...)
}

// Wait waits until f, which is called under the lock, is true. It returns false after the timeout.
func (h *Hub) Wait(ctx context.Context, timeout time.Duration, f func() bool) bool {
	expired := time.After(timeout)
	for {
		h.mu.Lock()
		ok, changed := f(), h.changed
		h.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-expired:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
