package shm

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// invitation says where descriptors are passed, with the key that permits it.
type invitation struct{ Socket, Key string }

// joinRequest comes with the descriptor of the member's arena.
type joinRequest struct {
	Key   string
	Rank  int
	Arena string // name; empty = none
}

// attachments comes with the descriptors of the segment and of all arenas.
type attachments struct {
	Arenas []string // names, by member; empty = none
}

// Lead forms a group as its member 0. conns[i] is a connection to member i+1, which calls Join. The
// error is an ErrUnavailable or, if a connection broke, a *MemberError.
//
// A group forms in four rounds of agreement: the members have sent join requests; member 0 has sent
// all descriptors; all have mapped the memory; all have tried to read each other's memory.
func Lead(ctx context.Context, conns []net.Conn, arena *Arena, maps *MappingCache) (*Group, error) {
	defer closeOnDone(ctx, conns)()
	f := &formation{agreement: coordinator(conns), size: len(conns) + 1, maps: maps}
	o, listener, problem := openInvitation()
	if problem == nil {
		defer func() { _ = listener.Close() }()
		defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	}
	for i, c := range conns {
		if err := send(c, o); err != nil {
			return nil, &MemberError{i + 1, err}
		}
	}
	if err := f.agree(problem); err != nil {
		return nil, err
	}
	fds, names, sockets, problem := acceptRequests(listener, o.Key, arena, len(conns))
	defer func() { closeAll(fds) }()
	defer func() {
		for _, s := range sockets {
			if s != nil {
				_ = s.Close()
			}
		}
	}()
	if problem == nil {
		fds, problem = distribute(fds, names, sockets)
	}
	if err := f.agree(problem); err != nil {
		return nil, err
	}
	return f.finish(0, fds, names, arena)
}

// Join forms a group as another member, over a connection to member 0, which calls Lead.
func Join(ctx context.Context, rank, size int, conn net.Conn, arena *Arena, maps *MappingCache) (*Group, error) {
	defer closeOnDone(ctx, []net.Conn{conn})()
	f := &formation{agreement: participant{conn}, size: size, maps: maps}
	var o invitation
	if err := receive(conn, &o); err != nil {
		return nil, &MemberError{0, err}
	}
	socket, problem := requestJoin(o, rank, arena)
	if problem == nil {
		defer func() { _ = socket.Close() }()
	}
	if err := f.agree(problem); err != nil {
		return nil, err
	}
	if err := f.agree(nil); err != nil {
		return nil, err
	}
	var t attachments
	fds, problem := receiveFDs(socket, &t)
	defer closeAll(fds)
	if problem != nil {
		fds = nil
	}
	return f.finish(rank, fds, t.Arenas, arena)
}

// openInvitation opens the socket on which descriptors are passed. Its name is abstract, because
// containers share no file system.
func openInvitation() (invitation, *net.UnixListener, error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	o := invitation{Socket: "@regroup-" + hex.EncodeToString(random[:16]), Key: hex.EncodeToString(random[16:])}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	return o, l, err
}

func requestJoin(o invitation, rank int, arena *Arena) (*net.UnixConn, error) {
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("not on the same host: %w", err)
	}
	h, fds := joinRequest{Key: o.Key, Rank: rank}, []int(nil)
	if arena != nil {
		h.Arena, fds = arena.name, []int{arena.fd}
	}
	return socket, sendFDs(socket, h, fds)
}

// acceptRequests accepts the join requests of all members, which have been sent. fds and names are
// those of the arenas by member; -1 = none.
func acceptRequests(l *net.UnixListener, key string, arena *Arena, members int) (fds []int, names []string, sockets []*net.UnixConn, err error) {
	fds, names, sockets = make([]int, members+1), make([]string, members+1), make([]*net.UnixConn, members)
	for i := range fds {
		fds[i] = -1
	}
	if arena != nil {
		if fds[0], err = unix.FcntlInt(uintptr(arena.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fds, nil, nil, err
		}
		names[0] = arena.name
	}
	for n := 0; n < members; {
		c, err := l.AcceptUnix()
		if err != nil {
			return fds, nil, sockets, err
		}
		var h joinRequest
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // members have sent theirs
		got, err := receiveFDs(c, &h)
		if err != nil || subtle.ConstantTimeCompare([]byte(h.Key), []byte(key)) != 1 ||
			h.Rank < 1 || h.Rank > members || sockets[h.Rank-1] != nil || len(got) > 1 {
			closeAll(got)
			_ = c.Close() // somebody else
			continue
		}
		sockets[h.Rank-1], names[h.Rank] = c, h.Arena
		if len(got) == 1 {
			fds[h.Rank] = got[0]
		}
		n++
	}
	return fds, names, sockets, nil
}

// distribute makes the segment and sends it, with all arenas, to all members. It returns the
// descriptors as receiveFDs does: the segment's first.
func distribute(arenas []int, names []string, sockets []*net.UnixConn) ([]int, error) {
	segment, err := create("regroup-group", segmentBytes(len(names)))
	if err != nil {
		return arenas, err
	}
	fds := []int{segment}
	for _, fd := range arenas {
		if fd >= 0 {
			fds = append(fds, fd)
		}
	}
	for _, s := range sockets {
		if err := sendFDs(s, attachments{names}, fds); err != nil {
			return fds, err
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func sendFDs(c *net.UnixConn, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, _, err = c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	return err
}

// receiveFDs reads one message. The caller must close the descriptors, also after an error.
func receiveFDs(c *net.UnixConn, v any) (fds []int, err error) {
	b, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace((MaxMembers+1)*4))
	n, m, _, _, err := c.ReadMsgUnix(b, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		return nil, err
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if n == 0 {
		return fds, errors.New("the socket was closed")
	}
	return fds, json.Unmarshal(b[:n], v)
}
