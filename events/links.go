package events

import "context"

// Link names one connection of a process to the brokers. The zero value is an unknown one.
type Link struct {
	Server string `json:"server,omitempty" bound:"word"` // id of the broker's life
	Client uint64 `json:"client,omitempty"`              // id of the connection there, never used again
	Count  uint64 `json:"count,omitempty"`               // how many the process had until then, this one included: orders those of one life
}

// Known tells whether the link names a connection at all.
func (l Link) Known() bool { return l.Server != "" }

// Same tells whether both name the same connection; brokers know no counts.
func (l Link) Same(m Link) bool { return l.Known() && l.Server == m.Server && l.Client == m.Client }

// After tells whether l is a newer connection of the same life of a process than m.
func (l Link) After(m Link) bool { return l.Known() && (!m.Known() || l.Count > m.Count) }

// Links is what is known of connections to the brokers.
type Links interface {
	// Own returns the connection of this process, a new one after each reconnect; the zero value while there is none.
	Own() Link
	// Ends calls fn with each connection whose end the brokers see, this process's own included, in no order. An end may be missed: those
	// of a broker that dies itself always are. Whether the process has died, said goodbye or reconnects cannot be told from it.
	// ready (may be nil) is called once it hears. It blocks. NotFound if there is no access to what the brokers tell of connections.
	Ends(ctx context.Context, fn func(Link), ready func()) error
}
