package elastic

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// What a newcomer and a holder of the state say to each other, before the newcomer is a member. All numbers are little
// endian.
//
//	newcomer → holder   question u8, length u32, body
//	holder → newcomer   answer u8, length u32, text                            (no, or reached)
//	                    answer u8, length u32, commit, then for each leaf:
//	                    u8 same | u8 sent, mark, bytes                         (state)
//	                    answer u8, length u32, entries                         (prologue)
//
// Nothing here is trusted for the state's sake: the hashes are compared again with those of the members in the sync.
const (
	askReach    byte = iota + 1 // body: the address at which the newcomer shall be called
	askState                    // body: last u8, layout, a mark for each leaf: what the newcomer has
	askPrologue                 // no body; the answer is the whole of it
)

const (
	answerNo byte = iota + 1
	answerYes
)

const (
	leafSame byte = iota + 1
	leafSent
)

// noCommit is the only "no" to askState that may change.
const noCommit = "nothing is committed yet"

const (
	visitStall = 10 * time.Second // for which one leaf, or an answer that needs no waiting, may be under way
	reachFor   = 3 * time.Second
	maxAddress = 1 << 10
	maxText    = 1 << 10
)

// host makes the endpoint pass the state of this worker's generation to newcomers, from its newest commit and without
// the trainer's help.
func (r *runner) host(a wire.Assignment) {
	if r.agent == nil {
		return
	}
	h := &holder{prologue: r.options.Prologue, shelf: r.state.shelf, layout: r.state.layout(), leaves: leaves(r.state.size), reach: func(ctx context.Context, address string) error {
		return r.endpoint.Reach(ctx, address, r.options.Job, a.Generation)
	}}
	r.endpoint.Host(&collective.Host{Job: r.options.Job, Generation: a.Generation, Token: wire.StateToken(a.Token), Serve: h.serve})
}

// holder answers newcomers.
type holder struct {
	prologue *Prologue
	shelf    *shelf
	layout   digest
	leaves   int
	reach    func(ctx context.Context, address string) error
}

// serve answers one newcomer until it hangs up. An error is the newcomer's business: it has seen the connection end.
func (h *holder) serve(ctx context.Context, conn net.Conn) {
	for {
		_ = conn.SetDeadline(time.Time{})
		question, body, err := readMessage(conn, max(maxAddress, 1+sha256.Size+h.leaves*len(mark{})))
		if err != nil {
			return
		}
		switch question {
		case askReach:
			err = h.reached(ctx, conn, string(body))
		case askState:
			err = h.state(ctx, conn, body)
		case askPrologue:
			_ = conn.SetWriteDeadline(time.Now().Add(visitStall))
			err = writeMessage(conn, answerYes, h.prologue.encode(0))
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

func (h *holder) reached(ctx context.Context, conn net.Conn, address string) error {
	ctx, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	_ = conn.SetWriteDeadline(time.Now().Add(visitStall))
	if err := h.reach(ctx, address); err != nil {
		return writeMessage(conn, answerNo, []byte(err.Error()))
	}
	return writeMessage(conn, answerYes, nil)
}

func (h *holder) state(ctx context.Context, conn net.Conn, body []byte) error {
	_ = conn.SetWriteDeadline(time.Now().Add(visitStall))
	if len(body) != 1+sha256.Size+h.leaves*len(mark{}) || digest(body[1:1+sha256.Size]) != h.layout {
		return writeMessage(conn, answerNo, []byte("the states of this worker and of the newcomer differ in tensors, objects or data set"))
	}
	last, known := body[0] == 1, body[1+sha256.Size:]
	gone, hungUp := context.WithCancel(ctx)
	defer hungUp()
	if last {
		defer untilHungUp(conn, hungUp)()
	}
	s, unpin := h.shelf.pin(gone, last)
	switch {
	case s == nil && last:
		return io.EOF
	case s == nil:
		return writeMessage(conn, answerNo, []byte(noCommit))
	}
	defer unpin()
	if !last {
		h.shelf.spare(s)
	}
	generation, step := h.shelf.named(s)
	commit := binary.LittleEndian.AppendUint64(nil, generation)
	commit = binary.LittleEndian.AppendUint64(commit, step)
	if err := writeMessage(conn, answerYes, append(commit, s.meta...)); err != nil {
		return err
	}
	for i := range s.pieces {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_ = conn.SetWriteDeadline(time.Now().Add(visitStall))
		m := s.piece(i)
		var err error
		if m == markAt(known, i) {
			_, err = conn.Write([]byte{leafSame})
		} else if _, err = conn.Write(append([]byte{leafSent}, m[:]...)); err == nil {
			_, err = conn.Write(leaf(s.data, i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// untilHungUp notices the end of a connection on which nothing is expected. The result stops that.
func untilHungUp(conn net.Conn, hungUp func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		if _, err := conn.Read(b[:]); !isTimeout(err) {
			hungUp()
		}
	}()
	return func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-done
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func writeMessage(w io.Writer, kind byte, body []byte) error {
	b := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

// readMessage reads what writeMessage wrote, of at most limit bytes.
func readMessage(r io.Reader, limit int) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[1:]))
	if n > limit {
		return 0, nil, fmt.Errorf("a message of %d bytes, at most %d are expected", n, limit)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}
