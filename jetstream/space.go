package jetstream

import (
	"syscall"

	"github.com/regroup-io/regroup/events"
)

// spare is how much space a store must have, in bytes.
const spare = 16 * mib

// Stores tells whether this server can store anything. nats-server gives a stream up for good when
// a write fails for lack of space, and answers nobody about it from then on. So once a disk was
// full, Stores begins all streams again, with what was acknowledged, as soon as there is space. It
// should be called every second or so, by one goroutine.
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
