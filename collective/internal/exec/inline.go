package exec

import (
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// runInline carries out the plan on the calling thread: it transfers what can be transferred, polls
// a few times more when nothing can, and then sleeps. It is for messages that take no longer to
// send than another thread takes to wake up.
func (x *executor) runInline() error {
	sends, recvs := x.plan.Sends, x.plan.Recvs
	var out, in PollConn
	var body []byte
	for s, r, idle := 0, 0, 0; s < len(sends) || r < len(recvs); {
		moved := false
		if out == nil && s < len(sends) && sends[s].After <= r {
			out, x.sendAt = x.nextSend(s).(PollConn), 0
		}
		if out != nil {
			n, err := out.TryWrite(rest(x.sendHeader[:], x.sendBody, x.sendAt))
			if err != nil {
				return x.broken(x.to.rank, err)
			}
			moved = n > 0
			if x.sendAt += n; x.sendAt == frame.HeaderLen+len(x.sendBody) {
				out, s = nil, s+1
			}
		}
		if in == nil && r < len(recvs) && (recvs[r].After <= s || !x.inPlace(recvs[r])) {
			c, p := x.nextRecv(r)
			in, body, x.recvAt = c.(PollConn), p, 0
		}
		if in != nil && x.recvAt < frame.HeaderLen+len(body) {
			n, err := in.TryRead(rest(x.recvHeader[:], body, x.recvAt))
			if err != nil {
				return x.broken(x.from.rank, err)
			}
			moved = moved || n > 0
			if x.recvAt < frame.HeaderLen && x.recvAt+n >= frame.HeaderLen {
				if err := x.check(r, len(body)); err != nil {
					return err
				}
			}
			x.recvAt += n
		}
		if in != nil && x.recvAt == frame.HeaderLen+len(body) && recvs[r].After <= s {
			x.apply(recvs[r], body)
			x.from.received++
			in, r, moved = nil, r+1, true
		}
		switch {
		case moved:
			idle = 0
		case x.waits.again(idle):
			idle++
		default:
			x.sleep(in, body, out)
		}
	}
	return nil
}

func (x *executor) sleep(in PollConn, body []byte, out PollConn) {
	if in != nil && x.recvAt == frame.HeaderLen+len(body) {
		in = nil // it is complete and waits for a send
	}
	x.ctx.watch()
	began := time.Now()
	poll(in, out)
	if in != nil {
		x.from.waited.Add(int64(time.Since(began)))
	}
}

// rest is what remains of header and body after at bytes.
func rest(header, body []byte, at int) ([]byte, []byte) {
	if at < len(header) {
		return header[at:], body
	}
	return nil, body[at-len(header):]
}
