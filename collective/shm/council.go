package shm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ErrUnavailable says that the members cannot share memory. The text says why, and all
// members get the same answer.
var ErrUnavailable = errors.New("no shared memory")

// finding is what one member, or all of them, found out in a round.
type finding struct {
	Problem string // empty = none
	NoVM    bool   // memory of some member cannot be read
}

func (f finding) merge(o finding, member int) finding {
	if f.Problem == "" && o.Problem != "" {
		f.Problem = fmt.Sprintf("member %d: %s", member, o.Problem)
	}
	f.NoVM = f.NoVM || o.NoVM
	return f
}

// council is how members come to the same conclusion: each brings a finding to a round and
// gets the merged one.
type council interface {
	round(finding) (finding, error)
}

// leader is the connections to the other members.
type leader []net.Conn

func (l leader) round(all finding) (finding, error) {
	all = finding{}.merge(all, 0)
	for i, c := range l {
		var f finding
		if err := receive(c, &f); err != nil {
			return f, &MemberError{i + 1, err}
		}
		all = all.merge(f, i+1)
	}
	for i, c := range l {
		if err := send(c, all); err != nil {
			return all, &MemberError{i + 1, err}
		}
	}
	return all, nil
}

// member is the connection to the leader.
type member struct{ conn net.Conn }

func (m member) round(mine finding) (all finding, err error) {
	if err = send(m.conn, mine); err == nil {
		err = receive(m.conn, &all)
	}
	if err != nil {
		return all, &MemberError{0, err}
	}
	return all, nil
}

const maxMessage = 64 << 10

func send(c net.Conn, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

func receive(c net.Conn, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxMessage {
		return fmt.Errorf("a message of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// deadlines ends what waits on the connections with ctx. The result stops that.
func deadlines(ctx context.Context, conns []net.Conn) func() bool {
	return context.AfterFunc(ctx, func() {
		for _, c := range conns {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	})
}
