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

// ErrUnavailable says that the members cannot share memory. The text says why. All members get the
// same error.
var ErrUnavailable = errors.New("no shared memory")

// vote is what one member contributes to a round of an agreement. The merged votes are the
// decision.
type vote struct {
	Problem string // empty = none
	NoVM    bool   // memory of some member cannot be read
}

func (f vote) merge(o vote, member int) vote {
	if f.Problem == "" && o.Problem != "" {
		f.Problem = fmt.Sprintf("member %d: %s", member, o.Problem)
	}
	f.NoVM = f.NoVM || o.NoVM
	return f
}

// agreement brings the members to the same decision: each contributes a vote to a round and
// receives the merged votes.
type agreement interface {
	round(vote) (vote, error)
}

// coordinator holds the connections to the other members.
type coordinator []net.Conn

func (l coordinator) round(mine vote) (vote, error) {
	return l.roundWith(func() vote { return mine })
}

// roundWith is a round in which the coordinator does its part when the others have voted, unless
// one of them has a problem.
func (l coordinator) roundWith(act func() vote) (all vote, err error) {
	for i, c := range l {
		var f vote
		if err := receive(c, &f); err != nil {
			return f, &MemberError{i + 1, err}
		}
		all = all.merge(f, i+1)
	}
	if all.Problem == "" {
		all = all.merge(act(), 0)
	}
	for i, c := range l {
		if err := send(c, all); err != nil {
			return all, &MemberError{i + 1, err}
		}
	}
	return all, nil
}

// participant holds the connection to the coordinator.
type participant struct{ conn net.Conn }

func (p participant) round(mine vote) (all vote, err error) {
	if err = send(p.conn, mine); err == nil {
		err = receive(p.conn, &all)
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

// closeOnDone interrupts reads and writes on the connections when ctx ends. The returned function
// cancels that.
func closeOnDone(ctx context.Context, conns []net.Conn) func() bool {
	return context.AfterFunc(ctx, func() {
		for _, c := range conns {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	})
}
