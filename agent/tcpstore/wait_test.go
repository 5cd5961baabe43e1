package tcpstore

import (
	"bytes"
	"fmt"
	"testing"
)

// talk is a connection that is served by hand, one step at a time.
type talk struct {
	*conn
	net *played
}

func newTalk(s *Server, d dialect) *talk {
	p := &played{}
	s.silent.Add(1)
	t := &talk{s.newConn(p), p}
	if d.hello != "" {
		t.say([]byte(d.hello))
	}
	return t
}

// say serves complete requests.
func (t *talk) say(requests []byte) error {
	if len(requests) > 0 {
		t.net.pieces = append(t.net.pieces, requests)
	}
	for len(t.net.pieces) > 0 || t.in.Buffered() > 0 {
		if err := t.serveOne(); err != nil {
			return err
		}
		t.giveBack()
	}
	return t.out.Flush()
}

// received returns what was sent to the client since the last call.
func (t *talk) received() []byte {
	b := bytes.Clone(t.net.out.Bytes())
	t.net.out.Reset()
	return b
}

// line is what one client says, and what each client hears then.
type line struct {
	who   string
	says  []any
	hears map[string][]any
}

var over = []any{u8(0)}

var scenes = []struct {
	name  string
	lines []line
}{
	{"set wakes all", []line{
		{"a", []any{ask("wait"), keys{"/k"}}, nil},
		{"b", []any{ask("wait"), keys{"/k"}}, nil},
		{"c", []any{ask("set"), "/k", "v"}, map[string][]any{"a": over, "b": over}},
		{"c", []any{ask("set"), "/k", "w"}, nil},
	}},
	{"a wait for two keys ends with the second", []line{
		{"a", []any{ask("wait"), keys{"/k", "/l"}}, nil},
		{"b", []any{ask("set"), "/l", ""}, nil},
		{"b", []any{ask("set"), "/l", "again"}, nil},
		{"b", []any{ask("set"), "/k", ""}, map[string][]any{"a": over}},
	}},
	{"a key that is there is not awaited", []line{
		{"b", []any{ask("set"), "/l", ""}, nil},
		{"a", []any{ask("wait"), keys{"/k", "/l"}}, nil},
		{"b", []any{ask("set"), "/k", ""}, map[string][]any{"a": over}},
	}},
	{"a key that occurs twice is awaited once", []line{
		{"a", []any{ask("wait"), keys{"/k", "/k"}}, nil},
		{"b", []any{ask("set"), "/k", ""}, map[string][]any{"a": over}},
	}},
	{"a key that was set and deleted counts", []line{
		{"a", []any{ask("wait"), keys{"/k", "/l"}}, nil},
		{"b", []any{ask("set"), "/l", "", ask("delete"), "/l"}, map[string][]any{"b": {1}}},
		{"b", []any{ask("set"), "/k", ""}, map[string][]any{"a": over}},
	}},
	{"delete wakes nobody", []line{
		{"a", []any{ask("wait"), keys{"/k"}}, nil},
		{"b", []any{ask("delete"), "/k"}, map[string][]any{"b": {0}}},
	}},
	{"add wakes, of nothing too", []line{
		{"a", []any{ask("wait"), keys{"/n"}}, nil},
		{"b", []any{ask("add"), "/n", 0}, map[string][]any{"a": over, "b": {0}}},
	}},
	{"compare wakes if it creates the key", []line{
		{"a", []any{ask("wait"), keys{"/k"}}, nil},
		{"b", []any{ask("cas"), "/k", "lie", "v"}, map[string][]any{"b": {"lie"}}},
		{"b", []any{ask("cas"), "/k", "", "v"}, map[string][]any{"a": over, "b": {"v"}}},
	}},
	{"append wakes", []line{
		{"a", []any{ask("wait"), keys{"/k"}}, nil},
		{"b", []any{ask("append"), "/k", "v"}, map[string][]any{"a": over}},
	}},
	{"a set of many wakes", []line{
		{"a", []any{ask("wait"), keys{"/k", "/l"}}, nil},
		{"b", []any{ask("wait"), keys{"/l"}}, nil},
		{"c", []any{ask("multiset"), 2, "/k", "v", "/l", "w"}, map[string][]any{"a": over, "b": over}},
	}},
	{"after cancel no answer follows", []line{
		{"a", []any{ask("wait"), keys{"/k"}}, nil},
		{"a", []any{ask("cancel")}, map[string][]any{"a": {u8(1)}}},
		{"b", []any{ask("set"), "/k", ""}, nil},
		{"a", []any{ask("wait"), keys{"/k"}}, map[string][]any{"a": over}},
	}},
	{"cancel comes after the answer", []line{
		{"a", []any{ask("wait"), keys{"/k"}}, nil},
		{"b", []any{ask("set"), "/k", ""}, map[string][]any{"a": over}},
		{"a", []any{ask("cancel")}, map[string][]any{"a": {u8(1)}}},
	}},
	{"a request ends the wait of a client whose time was up", []line{
		{"a", []any{ask("wait"), keys{"/k"}}, nil},
		{"a", []any{ask("num")}, map[string][]any{"a": {0}}},
		{"b", []any{ask("set"), "/k", ""}, nil},
		{"a", []any{ask("num")}, map[string][]any{"a": {1}}},
	}},
	{"a new wait replaces the old one", []line{
		{"a", []any{ask("wait"), keys{"/k", "/m"}}, nil},
		{"a", []any{ask("wait"), keys{"/l", "/m"}}, nil},
		{"b", []any{ask("set"), "/k", "", ask("set"), "/m", ""}, nil},
		{"b", []any{ask("set"), "/l", ""}, map[string][]any{"a": over}},
	}},
	{"an item is for one", []line{
		{"a", []any{ask("wait"), keys{"/q"}}, nil},
		{"b", []any{ask("wait"), keys{"/q"}}, nil},
		{"c", []any{ask("push"), "/q", "1"}, map[string][]any{"a": over}},
		{"c", []any{ask("push"), "/q", "2"}, map[string][]any{"b": over}},
		{"a", []any{ask("pop"), "/q"}, map[string][]any{"a": {2, "1"}}},
		{"b", []any{ask("pop"), "/q"}, map[string][]any{"b": {1, "2"}}},
	}},
	{"an item is for the next if the first still misses a key", []line{
		{"a", []any{ask("wait"), keys{"/q", "/k"}}, nil},
		{"b", []any{ask("wait"), keys{"/q"}}, nil},
		{"c", []any{ask("push"), "/q", "1"}, map[string][]any{"b": over}},
		{"c", []any{ask("set"), "/k", ""}, map[string][]any{"a": over}},
	}},
	{"barrier", []line{
		{"a", []any{ask("barrier"), "/b", 3}, nil},
		{"b", []any{ask("barrier"), "/b", 3}, nil},
		{"c", []any{ask("barrier"), "/b", 3}, map[string][]any{"a": over, "b": over, "c": over}},
		{"a", []any{ask("get"), "/b"}, map[string][]any{"a": {"3"}}},
		{"a", []any{ask("barrier"), "/b", 3}, map[string][]any{"a": over}},
	}},
	{"a barrier that is cancelled has been counted", []line{
		{"a", []any{ask("barrier"), "/b", 2}, nil},
		{"a", []any{ask("cancel")}, map[string][]any{"a": {u8(1)}}},
		{"b", []any{ask("barrier"), "/b", 2}, map[string][]any{"b": over}},
	}},
	{"a barrier wakes who waits for its key when it is complete", []line{
		{"a", []any{ask("wait"), keys{"/b"}}, nil},
		{"b", []any{ask("barrier"), "/b", 2}, nil},
		{"c", []any{ask("barrier"), "/b", 2}, map[string][]any{"a": over, "b": over, "c": over}},
	}},
}

// TestWaits plays scenes of several clients, in every dialect that has the operations.
func TestWaits(t *testing.T) {
	for _, d := range dialects {
		for _, sc := range scenes {
			t.Run(d.name+"/"+sc.name, func(t *testing.T) {
				s := isolated(Options{})
				clients := map[string]*talk{"a": newTalk(s, d), "b": newTalk(s, d), "c": newTalk(s, d)}
				for i, l := range sc.lines {
					says, ok := encode(d, l.says...)
					if !ok {
						return // the dialect ends here
					}
					if err := clients[l.who].say(says); err != nil {
						t.Fatal(err)
					}
					for name, c := range clients {
						if want, _ := encode(d, l.hears[name]...); !bytes.Equal(c.received(), want) {
							t.Fatalf("line %d: %s does not hear %q", i+1, name, want)
						}
					}
				}
				for _, c := range clients {
					c.endWait()
				}
				checkEmptied(t, s)
			})
		}
	}
}

// TestAFiredWaitCanBeWithdrawn: between the end of a wait and its answer the client gives up.
func TestAFiredWaitCanBeWithdrawn(t *testing.T) {
	s := isolated(Options{})
	a := newTalk(s, newest)
	wait, _ := encode(newest, ask("wait"), keys{"/k"})
	cancel, _ := encode(newest, ask("cancel"))
	if err := a.say(wait); err != nil {
		t.Fatal(err)
	}
	woken, err := s.store.set("/k", nil)
	if err != nil || len(woken) != 1 {
		t.Fatal(woken, err)
	}
	if err := a.say(cancel); err != nil {
		t.Fatal(err)
	}
	notify(woken)
	if got := a.received(); string(got) != "\x01" {
		t.Errorf("received %q", got)
	}
}

// TestRepliesPrecedeTheAnswerOfAWait: what was asked before the wait, in the same segment, is
// answered before.
func TestRepliesPrecedeTheAnswerOfAWait(t *testing.T) {
	for _, wait := range [][]any{{ask("wait"), keys{"/k"}}, {ask("barrier"), "/k", 2}} {
		s := isolated(Options{})
		a := newTalk(s, newest)
		says, _ := encode(newest, append([]any{ask("num")}, wait...)...)
		a.net.pieces = [][]byte{says}
		for range 2 {
			if err := a.serveOne(); err != nil {
				t.Fatal(err)
			}
		}
		woken, _ := s.store.set("/k", nil)
		notify(woken)
		if want, _ := encode(newest, 0, u8(0)); !bytes.Equal(a.received(), want) {
			t.Error("the replies are in disorder")
		}
	}
}

// TestValuesCountWhileTheyAreSent: memory of a value that was replaced is free once no reply refers
// to it, and an append does not change what a reply refers to.
func TestValuesCountWhileTheyAreSent(t *testing.T) {
	s := newStore(1 << 20)
	for i := range 3 {
		if _, err := s.set("k", fmt.Append(make([]byte, 0, 100), i)); err != nil {
			t.Fatal(err)
		}
	}
	sent := s.getOne("k")
	before := s.budget.used.Load()
	if _, err := s.append("k", []byte("x")); err != nil || string(sent.data) != "2" {
		t.Fatal(err, string(sent.data))
	}
	if s.budget.used.Load() <= before {
		t.Error("the value that is sent counts no longer")
	}
	sent.release(&s.budget)
	again := s.getOne("k")
	if string(again.data) != "2x" || s.budget.used.Load() != 1+again.cost {
		t.Errorf("%q, %d bytes", again.data, s.budget.used.Load())
	}
}

// TestCancelledWaitsLeaveNothing: thousands of clients that wait for thousands of keys, and end,
// cost their own keys each, and leave no place behind.
func TestCancelledWaitsLeaveNothing(t *testing.T) {
	s := newStore(1 << 30)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	waiters := make([]*waiter, 1000)
	s.mu.Lock()
	for i := range waiters {
		waiters[i] = &waiter{}
		if err := s.park(waiters[i], append(keys, keys[0])); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Unlock()
	stays := waiters[500]
	for _, w := range waiters {
		if w != stays {
			s.cancel(w)
		}
	}
	s.mu.Lock()
	for k, q := range s.waiting {
		if len(q.places) > 4 { // that of the one that stays, twice for a key, and as many that are over
			t.Fatalf("%d places are left for %s", len(q.places), k)
		}
	}
	var woken []*waiter
	for _, k := range keys {
		woken = append(woken, s.wake(k)...)
	}
	s.mu.Unlock()
	if len(woken) != 1 || woken[0] != stays || len(s.waiting) != 0 {
		t.Errorf("%d waiters were woken, and %d keys are still waited for", len(woken), len(s.waiting))
	}
}
