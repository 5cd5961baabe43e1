//go:build !linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// On systems other than Linux no group ever forms, and the rest is not reached.

var errLinux = errors.New("only on Linux")

// Arena is memory that members can map; see the version for Linux.
type Arena struct{}

// NewArena fails.
func NewArena() (*Arena, error) { return nil, fmt.Errorf("shm: arena: %w", errLinux) }

// Alloc fails.
func (*Arena) Alloc(int) ([]byte, error) { return nil, errLinux }

// Free does nothing.
func (*Arena) Free([]byte) {}

// Close does nothing.
func (*Arena) Close() {}

func (*Arena) holds([]byte) bool    { return false }
func (*Arena) offset([]byte) uint64 { return 0 }

// Lead tells the members that there is no group.
func Lead(ctx context.Context, conns []net.Conn, _ *Arena, _ *MappingCache) (*Group, error) {
	defer closeOnDone(ctx, conns)()
	for i, c := range conns {
		if err := send(c, struct{}{}); err != nil {
			return nil, &MemberError{i + 1, err}
		}
	}
	_, err := coordinator(conns).round(vote{Problem: errLinux.Error()})
	return nil, unavailable(err)
}

// Join tells member 0 that there is no group.
func Join(ctx context.Context, _, _ int, conn net.Conn, _ *Arena, _ *MappingCache) (*Group, error) {
	defer closeOnDone(ctx, []net.Conn{conn})()
	var o struct{}
	if err := receive(conn, &o); err != nil {
		return nil, &MemberError{0, err}
	}
	_, err := participant{conn}.round(vote{Problem: errLinux.Error()})
	return nil, unavailable(err)
}

func unavailable(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, errLinux)
}

func readProcess(int, uint64, []byte) error { return errLinux }
func processDead(int) bool                  { return false }
func yield()                                {}
func futexWake(*uint32)                     {}

func futexWait(*uint32, uint32, time.Duration) bool { return false }

func detach([]byte)                      {}
func attachReadOnly(int) ([]byte, error) { return nil, errLinux }
