package elastictest

import (
	"cmp"
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
	slices.SortFunc(next, func(a, b string) int {
		return cmp.Or(cmp.Compare(seniority(h.Members, a), seniority(h.Members, b)), cmp.Compare(a, b))
	})
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

func seniority(members []string, token string) int {
	if i := slices.Index(members, token); i >= 0 {
		return i
	}
	return len(members)
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
