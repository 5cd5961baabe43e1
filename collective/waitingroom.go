package collective

import (
	"net"
	"net/netip"
	"slices"
)

// waitingRoom holds what waits, oldest first: at most so many of one source and in all. It never says no: who comes when it is full
// takes the place of the oldest of his own source, or of that which has the most. Who floods it is in his own way first.
type waitingRoom[T comparable] struct {
	perSource, total int
	of               map[string][]T
	source           map[T]string
}

func newWaitingRoom[T comparable](perSource, total int) *waitingRoom[T] {
	return &waitingRoom[T]{perSource: perSource, total: total, of: map[string][]T{}, source: map[T]string{}}
}

// add lets an item in, and names the one that had to leave for it.
func (w *waitingRoom[T]) add(item T, source string) (oldest T, over bool) {
	full := source
	if len(w.of[source]) < w.perSource {
		if len(w.source) >= w.total {
			for s, all := range w.of {
				if n := len(w.of[full]); len(all) > n || len(all) == n && s < full {
					full = s
				}
			}
			over = true
		}
	} else {
		over = true
	}
	if over {
		oldest = w.of[full][0]
		w.remove(oldest)
	}
	w.of[source] = append(w.of[source], item)
	w.source[item] = source
	return oldest, over
}

// remove tells whether the item was still there.
func (w *waitingRoom[T]) remove(item T) bool {
	source, there := w.source[item]
	if !there {
		return false
	}
	delete(w.source, item)
	left := slices.DeleteFunc(w.of[source], func(x T) bool { return x == item })
	if w.of[source] = left; len(left) == 0 {
		delete(w.of, source)
	}
	return true
}

// list returns all items.
func (w *waitingRoom[T]) list() []T {
	var all []T
	for _, items := range w.of {
		all = append(all, items...)
	}
	return all
}

// clear empties the room and returns who was in it.
func (w *waitingRoom[T]) clear() []T {
	all := w.list()
	clear(w.of)
	clear(w.source)
	return all
}

// source is the machine that a connection comes from, or the network that one machine has with IPv6.
func source(conn net.Conn) string {
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
