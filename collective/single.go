package collective

import "time"

// single carries the plan out on the calling thread: it sends and receives whatever can
// be moved, looks a few times more when nothing can, and then sleeps until something
// can. For messages that are sent in the time in which another thread would wake up.
func (x *execution) single() error {
	sends, recvs := x.plan.Sends, x.plan.Recvs
	var out, in polled
	var body []byte
	for s, r, idle := 0, 0, 0; s < len(sends) || r < len(recvs); {
		moved := false
		if out == nil && s < len(sends) && sends[s].After <= r {
			out, x.sendAt = x.message(s).(polled), 0
		}
		if out != nil {
			n, err := out.tryWrite(rest(x.sendHead[:], x.sendBody, x.sendAt))
			if err != nil {
				return x.broken(x.to.rank, err)
			}
			moved = n > 0
			if x.sendAt += n; x.sendAt == headLen+len(x.sendBody) {
				out, s = nil, s+1
			}
		}
		if in == nil && r < len(recvs) && (recvs[r].After <= s || !x.inPlace(recvs[r])) {
			w, p := x.incoming(r)
			in, body, x.recvAt = w.(polled), p, 0
		}
		if in != nil && x.recvAt < headLen+len(body) {
			n, err := in.tryRead(rest(x.recvHead[:], body, x.recvAt))
			if err != nil {
				return x.broken(x.from.rank, err)
			}
			moved = moved || n > 0
			if x.recvAt < headLen && x.recvAt+n >= headLen {
				if err := x.check(r, len(body)); err != nil {
					return err
				}
			}
			x.recvAt += n
		}
		if in != nil && x.recvAt == headLen+len(body) && recvs[r].After <= s {
			x.apply(recvs[r], body)
			x.from.got++
			in, r, moved = nil, r+1, true
		}
		switch {
		case moved:
			idle = 0
		case idle < x.c.spins:
			idle++
		default:
			x.sleep(in, body, out)
		}
	}
	return nil
}

// sleep waits for a wire.
func (x *execution) sleep(in polled, body []byte, out polled) {
	if in != nil && x.recvAt == headLen+len(body) {
		in = nil // it is there and waits for a send
	}
	x.c.watchNow()
	began := time.Now()
	await(in, out)
	if in != nil {
		x.from.waited.Add(int64(time.Since(began)))
	}
}

// rest is what is left of head and body behind at.
func rest(head, body []byte, at int) ([]byte, []byte) {
	if at < len(head) {
		return head[at:], body
	}
	return nil, body[at-len(head):]
}
