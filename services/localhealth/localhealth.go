// Package localhealth tells whether a replica may take what it has not received for not sent. The
// name is that of Lifeguard (Dadgar, Phillips, Currey 2018): a failure detector that doubts itself
// first.
package localhealth

import "time"

// Monitor is the state of one replica that checks timeouts periodically.
type Monitor struct {
	disconnected bool
	lastCheck    time.Time
}

// Connected sets whether the replica receives anything, and reports whether timeouts start again.
func (m *Monitor) Connected(is bool) (restart bool) {
	restart = is && m.disconnected
	m.disconnected = !is
	return restart
}

// Disconnected reports whether the replica receives nothing: timeouts do not count then.
func (m *Monitor) Disconnected() bool { return m.disconnected }

// Check notes a check of timeouts. It reports whether they must start again, because the process or
// the machine was paused for longer than gap, or its clock was set back.
func (m *Monitor) Check(now time.Time, gap time.Duration) (restart bool) {
	since := now.Sub(m.lastCheck)
	restart = !m.lastCheck.IsZero() && (since > gap || since < 0)
	m.lastCheck = now
	return restart
}

// Checked reports whether the last check of timeouts was not longer ago than gap: a process that
// was paused knows what it knew before.
func (m *Monitor) Checked(now time.Time, gap time.Duration) bool {
	since := now.Sub(m.lastCheck)
	return !m.lastCheck.IsZero() && since >= 0 && since <= gap
}

// Skip notes that the time since the last check was spent otherwise and is no gap.
func (m *Monitor) Skip(now time.Time) { m.lastCheck = now }
