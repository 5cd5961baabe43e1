package jetstream

import (
	"syscall"

	"github.com/regroup-io/regroup/events"
)

// spare is the minimum free space of a store, in bytes.
const spare = 16 * mib

// Stores reports whether this server can store anything. nats-server disables a stream permanently
// when a write fails for lack of space, and then does not answer requests for it. After a full disk
// Stores therefore restarts all streams, with their acknowledged data, as soon as there is space.
// One goroutine should call it about every second.
func (s *Server) Stores() error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.config.StoreDir, &disk); err != nil {
		return events.Errorf(events.Unavailable, "the store in %s: %w", s.config.StoreDir, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < spare {
		s.full = true
		return events.Errorf(events.Unavailable, "nothing more can be stored: the disk of %s is full, %d MiB are free and %d are needed", s.config.StoreDir, free/mib, spare/mib)
	}
	if !s.full && s.ns.JetStreamEnabled() {
		return nil
	}
	if s.ns.JetStreamEnabled() {
		if err := s.ns.ShutdownJetStream(); err != nil {
			return events.Errorf(events.Unavailable, "the store in %s: %w", s.config.StoreDir, err)
		}
	}
	config := s.config
	if err := s.ns.EnableJetStream(&config); err != nil {
		return events.Errorf(events.Unavailable, "the store in %s: %w", s.config.StoreDir, err)
	}
	s.full = false
	return nil
}
