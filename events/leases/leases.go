// Package leases says how long the processes of a node that was lost may still run.
package leases

import "time"

// Ends are the times at which the agent of a lost node has certainly ended its processes, on
// the clock of the services. Example: a node with one process of a job that is restarted as a group
// is heard for the last time at 12:00:00. With a lease of 3 s its agent kills the process at
// 12:00:03, and at 12:00:03.5 the process may be started elsewhere.
type Ends struct {
	// Restart is for processes of recovery by restart.
	Restart time.Time `json:"restart,omitzero"`
	// InPlace is for processes of in-process recovery. While another member of their generation is
	// there it does not matter: without it they make no step.
	InPlace time.Time `json:"in_place,omitzero"`
}

// Later returns the later of each time.
func (l Ends) Later(m Ends) Ends {
	if m.Restart.After(l.Restart) {
		l.Restart = m.Restart
	}
	if m.InPlace.After(l.InPlace) {
		l.InPlace = m.InPlace
	}
	return l
}

// IsZero reports whether no process may run.
func (l Ends) IsZero() bool { return l.Restart.IsZero() && l.InPlace.IsZero() }
