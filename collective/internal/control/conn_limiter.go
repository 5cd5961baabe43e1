package control

import (
	"net"
	"net/netip"
	"slices"
)

// connLimiter holds waiting connections, oldest first, up to a limit per source and in all. It
// never refuses: at the limit a new one replaces the oldest of its own source, or of the source
// that has the most. A source that floods it thus hurts itself first.
type connLimiter[T comparable] struct {
	perSource, total int
	waiting          []limited[T] // oldest first
}

type limited[T comparable] struct {
	item   T
	source string
}

func newConnLimiter[T comparable](perSource, total int) *connLimiter[T] {
	return &connLimiter[T]{perSource: perSource, total: total}
}

// add adds an item and returns the one that was evicted for it, if any.
func (w *connLimiter[T]) add(item T, source string) (evicted T, ok bool) {
	has := map[string]int{}
	for _, x := range w.waiting {
		has[x.source]++
	}
	full := source
	ok = has[source] >= w.perSource
	if !ok && len(w.waiting) >= w.total {
		ok = true
		for _, x := range w.waiting {
			if has[x.source] > has[full] {
				full = x.source
			}
		}
	}
	if ok {
		i := slices.IndexFunc(w.waiting, func(x limited[T]) bool { return x.source == full })
		evicted = w.waiting[i].item
		w.waiting = slices.Delete(w.waiting, i, i+1)
	}
	w.waiting = append(w.waiting, limited[T]{item, source})
	return evicted, ok
}

// remove reports whether the item was still there.
func (w *connLimiter[T]) remove(item T) bool {
	before := len(w.waiting)
	w.waiting = slices.DeleteFunc(w.waiting, func(x limited[T]) bool { return x.item == item })
	return len(w.waiting) < before
}

func (w *connLimiter[T]) list() []T {
	all := make([]T, len(w.waiting))
	for i, x := range w.waiting {
		all[i] = x.item
	}
	return all
}

func (w *connLimiter[T]) clear() []T {
	all := w.list()
	w.waiting = nil
	return all
}

// sourceOf is the machine that a connection comes from, or with IPv6 the network of one machine.
func sourceOf(conn net.Conn) string {
	from := conn.RemoteAddr().String()
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return from
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
