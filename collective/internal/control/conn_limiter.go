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
	bySource         map[string][]T
	source           map[T]string
}

func newConnLimiter[T comparable](perSource, total int) *connLimiter[T] {
	return &connLimiter[T]{perSource: perSource, total: total, bySource: map[string][]T{}, source: map[T]string{}}
}

// add adds an item and returns the one that was evicted for it, if any.
func (w *connLimiter[T]) add(item T, source string) (evicted T, ok bool) {
	full := source
	ok = len(w.bySource[source]) >= w.perSource
	if !ok && len(w.source) >= w.total {
		ok = true
		for s, all := range w.bySource {
			if n := len(w.bySource[full]); len(all) > n || len(all) == n && s < full {
				full = s
			}
		}
	}
	if ok {
		evicted = w.bySource[full][0]
		w.remove(evicted)
	}
	w.bySource[source] = append(w.bySource[source], item)
	w.source[item] = source
	return evicted, ok
}

// remove reports whether the item was still there.
func (w *connLimiter[T]) remove(item T) bool {
	source, ok := w.source[item]
	if !ok {
		return false
	}
	delete(w.source, item)
	rest := slices.DeleteFunc(w.bySource[source], func(x T) bool { return x == item })
	if w.bySource[source] = rest; len(rest) == 0 {
		delete(w.bySource, source)
	}
	return true
}

func (w *connLimiter[T]) list() []T {
	var all []T
	for _, items := range w.bySource {
		all = append(all, items...)
	}
	return all
}

func (w *connLimiter[T]) clear() []T {
	all := w.list()
	clear(w.bySource)
	clear(w.source)
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
