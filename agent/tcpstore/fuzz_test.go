package tcpstore

import (
	"runtime"
	"testing"
)

// FuzzConnection: whatever two connections send, in whatever pieces, nothing panics, memory stays
// within the bounds, and nothing but keys and queues is left at the end.
func FuzzConnection(f *testing.F) {
	for _, d := range dialects {
		for _, c := range conversations {
			if says, ok := encode(d, c.says...); ok {
				f.Add(append([]byte(d.hello), says...), []byte{}, uint16(3))
			}
		}
		for _, sc := range scenes {
			clients := map[string][]byte{"a": []byte(d.hello), "b": []byte(d.hello), "c": []byte(d.hello)}
			for _, l := range sc.lines {
				says, _ := encode(d, l.says...)
				clients[l.who] = append(clients[l.who], says...)
			}
			f.Add(clients["a"], clients["b"], uint16(0xffff))
		}
	}
	f.Add([]byte("GET / HTTP/1.1\r\n"), []byte("\x16\x03\x01\x02\x00\x01"), uint16(1))
	f.Add([]byte("\x00\xff\xff\xff\x00\x00\x00\x00\x00"), []byte("\x04\xff\xff\x01\x00\x00\x00\x00\x00"), uint16(0))
	f.Fuzz(func(t *testing.T, first, second []byte, cut uint16) {
		const memory = 256 << 10
		s := isolated(Options{MaxMemory: memory})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		waits := newTalk(s, dialect{})
		open := waits.say(nil) == nil && waits.sayAll(first)
		at := min(int(cut), len(second))
		replies, err := play(s, second[:at], second[at:])
		if err == nil {
			t.Fatal("a connection ends without a reason")
		}
		runtime.ReadMemStats(&after)
		// A value that is received costs thrice its length at most; replies copy no values.
		if spent, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+32*(len(first)+len(second))+8*memory+2*len(replies)); spent > most {
			t.Errorf("%d bytes were allocated for %d, at most %d", spent, len(first)+len(second), most)
		}
		if used := s.store.budget.used.Load(); used > memory {
			t.Errorf("%d bytes are used of %d", used, memory)
		}
		if open {
			waits.giveBack()
			waits.endWait()
		}
		checkEmptied(t, s)
	})
}

// sayAll serves what may end within a request, and tells whether the connection is still open.
func (t *talk) sayAll(requests []byte) bool {
	err := t.say(requests)
	if err != nil {
		t.giveBack()
		t.endWait()
	}
	return err == nil
}
