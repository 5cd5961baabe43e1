package tcpstore

import (
	"cmp"
	"log/slog"
	"net"

	"github.com/regroup-io/regroup/events/limits"
)

// Options are those of a server. The zero value has the defaults, which docs/limits.md lists.
type Options struct {
	// MaxKey and MaxValue are the bytes of one key and of one value in a request.
	MaxKey, MaxValue int
	// MaxKeys is the number of keys of one request.
	MaxKeys int
	// MaxMemory is the bytes that the store holds: keys and values, waiting clients, and requests
	// that are being received.
	MaxMemory int64
	// MaxConnections is the number of connections, MaxSilent that of those that have sent nothing
	// yet. A client of PyTorch 1.13 keeps one of each kind.
	MaxConnections, MaxSilent int
	// Log receives why connections are closed; nil discards it.
	Log *slog.Logger
}

func (o Options) defaults() Options {
	o.MaxKey = cmp.Or(o.MaxKey, limits.StoreKey.Max)
	o.MaxValue = cmp.Or(o.MaxValue, limits.StoreValue.Max)
	o.MaxKeys = cmp.Or(o.MaxKeys, limits.StoreKeys.Max)
	o.MaxMemory = cmp.Or(o.MaxMemory, int64(limits.StoreMemory.Max))
	o.MaxConnections = cmp.Or(o.MaxConnections, limits.StoreConnections.Max)
	o.MaxSilent = cmp.Or(o.MaxSilent, limits.StoreSilent.Max)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// Serve serves a new store on a TCP listener, which the server then owns.
func (o Options) Serve(l net.Listener) *Server {
	s := newServer(l, o.defaults())
	s.running.Go(s.accept)
	return s
}
