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

// formVersion is the version of the messages with which a group forms. Processes of one machine may
// have loaded libraries of different ages.
const formVersion = 2

// invitation says where descriptors are passed, with the key that permits it.
type invitation struct {
	Version     int
	Socket, Key string
}

// joinRequest comes with the descriptor of the member's arena.
type joinRequest struct {
	Version int
	Key     string
	Rank    int
	Member  member
}

// member is what the others know of one.
type member struct {
	Arena   string // name; empty = none
	PID     int
	Address uint64 // of the probe
	Probe   []byte // what is there
}

// attachments comes with the descriptors of the segment and of all arenas.
type attachments struct{ Members []member }

// Lead forms a group as its member 0. conns[i] is a connection to member i+1, which calls Join. The
// error is an ErrUnavailable or, if a connection broke, a *MemberError.
//
// A group forms in two rounds of agreement: the others have sent join requests, then member 0 has
// sent all descriptors; all have mapped the memory, and tried to read each other's.
func Lead(ctx context.Context, conns []net.Conn, arena *Arena, maps *MappingCache) (*Group, error) {
	defer closeOnDone(ctx, conns)()
	lead := coordinator(conns)
	f := newFormation(lead, 0, len(conns)+1, arena, maps)
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
	var fds []int
	var members []member
	_, err := decision(lead.roundWith(func() vote {
		if problem == nil {
			fds, members, problem = f.exchange(listener, o.Key)
		}
		return vote{}.with(problem)
	}))
	defer func() { closeAll(fds) }()
	if err != nil {
		return nil, err
	}
	return f.finish(fds, members)
}

// Join forms a group as another member, over a connection to member 0, which calls Lead.
func Join(ctx context.Context, rank, size int, conn net.Conn, arena *Arena, maps *MappingCache) (*Group, error) {
	defer closeOnDone(ctx, []net.Conn{conn})()
	f := newFormation(participant{conn}, rank, size, arena, maps)
	var o invitation
	if err := receive(conn, &o); err != nil {
		return nil, &MemberError{0, err}
	}
	socket, problem := f.requestJoin(o)
	if socket != nil {
		defer func() { _ = socket.Close() }()
	}
	if _, err := f.decide(vote{}.with(problem)); err != nil {
		return nil, err
	}
	var t attachments
	fds, problem := receiveFDs(socket, &t)
	defer closeAll(fds)
	if problem != nil {
		fds = nil
	}
	return f.finish(fds, t.Members)
}

// openInvitation opens the socket on which descriptors are passed. Its name is abstract, because
// containers share no file system.
func openInvitation() (invitation, *net.UnixListener, error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	o := invitation{Version: formVersion, Socket: "@regroup-" + hex.EncodeToString(random[:16]), Key: hex.EncodeToString(random[16:])}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	return o, l, err
}

func (f *formation) requestJoin(o invitation) (*net.UnixConn, error) {
	if o.Version != formVersion {
		return nil, errOtherVersion
	}
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("not on the same host: %w", err)
	}
	h, fds := joinRequest{Version: formVersion, Key: o.Key, Rank: f.rank, Member: f.member()}, []int(nil)
	if f.arena != nil {
		fds = []int{f.arena.fd}
	}
	return socket, sendFDs(socket, h, fds)
}

var errOtherVersion = errors.New("the ranks of this machine have loaded different versions of regroup's library")

// exchange accepts the join requests of all members, which have been sent, makes the segment and
// sends it to all of them, with all arenas. It returns the descriptors as receiveFDs does, the
// segment's first.
func (f *formation) exchange(l *net.UnixListener, key string) ([]int, []member, error) {
	arenas, members, sockets, err := f.acceptRequests(l, key)
	defer func() {
		for _, s := range sockets {
			if s != nil {
				_ = s.Close()
			}
		}
	}()
	if err != nil {
		return arenas, nil, err
	}
	fds, err := distribute(arenas, members, sockets)
	return fds, members, err
}

// acceptRequests accepts the join requests. fds are those of the arenas by member; -1 = none.
func (f *formation) acceptRequests(l *net.UnixListener, key string) (fds []int, members []member, sockets []*net.UnixConn, err error) {
	fds, members, sockets = make([]int, f.size), make([]member, f.size), make([]*net.UnixConn, f.size)
	for i := range fds {
		fds[i] = -1
	}
	if f.arena != nil {
		if fds[0], err = unix.FcntlInt(uintptr(f.arena.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fds, nil, nil, err
		}
	}
	members[0] = f.member()
	for n := 1; n < f.size; {
		c, err := l.AcceptUnix()
		if err != nil {
			return fds, nil, sockets, err
		}
		var h joinRequest
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // members have sent theirs
		got, err := receiveFDs(c, &h)
		if err != nil || subtle.ConstantTimeCompare([]byte(h.Key), []byte(key)) != 1 ||
			h.Rank < 1 || h.Rank >= f.size || sockets[h.Rank] != nil || len(got) > 1 {
			closeAll(got)
			_ = c.Close() // from no member
			continue
		}
		sockets[h.Rank], members[h.Rank] = c, h.Member
		if len(got) == 1 {
			fds[h.Rank] = got[0]
		}
		if h.Version != formVersion {
			return fds, nil, sockets, errOtherVersion
		}
		n++
	}
	return fds, members, sockets, nil
}

// distribute makes the segment and sends it, with all arenas, to all other members. It returns the
// descriptors as receiveFDs does: the segment's first.
func distribute(arenas []int, members []member, sockets []*net.UnixConn) ([]int, error) {
	segment, err := create("regroup-group", segmentBytes(len(members)))
	if err != nil {
		return arenas, err
	}
	fds := []int{segment}
	for _, fd := range arenas {
		if fd >= 0 {
			fds = append(fds, fd)
		}
	}
	for _, s := range sockets[1:] {
		if err := sendFDs(s, attachments{members}, fds); err != nil {
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
