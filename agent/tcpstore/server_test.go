package tcpstore

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func listen(t *testing.T, o Options) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := o.Serve(l)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is a client over TCP that speaks the newest dialect.
type client struct {
	*testing.T
	net.Conn
}

func dial(t *testing.T, s *Server) client {
	t.Helper()
	nc, err := net.Dial("tcp", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return client{t, nc}
}

func (c client) say(parts ...any) {
	b, _ := encode(newest, parts...)
	if _, err := c.Write(b); err != nil {
		c.Error(err)
	}
}

func (c client) hear(parts ...any) {
	c.Helper()
	want, _ := encode(newest, parts...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		c.Errorf("%q, %v, want %q", got, err, want)
	}
}

func (c client) hello() client {
	if _, err := c.Write([]byte(newest.hello)); err != nil {
		c.Error(err)
	}
	return c
}

// closed waits until the server has closed the connection.
func (c client) closed() {
	c.Helper()
	if b, err := io.ReadAll(c); len(b) > 0 {
		c.Errorf("%q, %v", b, err)
	}
}

// TestConversationsOverTCP plays the conversations through sockets, byte by byte.
func TestConversationsOverTCP(t *testing.T) {
	for _, d := range dialects {
		for _, c := range conversations {
			says, ok := encode(d, c.says...)
			if !ok {
				continue
			}
			s := listen(t, Options{})
			nc := dial(t, s).Conn.(*net.TCPConn)
			for _, b := range append([]byte(d.hello), says...) {
				if _, err := nc.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			nc.CloseWrite()
			want, _ := encode(d, c.hears...)
			if got, err := io.ReadAll(nc); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %s: %q, %v, want %q", d.name, c.name, got, err, want)
			}
		}
	}
}

func TestLargeValues(t *testing.T) {
	s := listen(t, Options{})
	c := dial(t, s).hello()
	most := strings.Repeat("0123456789abcdef", (8<<20)/16)
	c.say(ask("set"), "/k", most, ask("append"), "/l", most[:5000], ask("append"), "/l", most[5000:70_000], ask("num"))
	c.hear(2)
	c.say(ask("multiget"), keys{"/k", "/l", "/k"})
	c.hear(most, most[:70_000], most)
	c.say(ask("set"), "/k", 8<<20+1)
	c.closed()
	if v, ok := s.Get("l"); !ok || string(v) != most[:70_000] {
		t.Error("Get returns something else")
	}
}

// TestServerAsAClient: what the server's own process sets is what clients get, and wakes them.
func TestServerAsAClient(t *testing.T) {
	s := listen(t, Options{})
	if _, ok := s.Get("k"); ok {
		t.Error("there is a key")
	}
	c := dial(t, s).hello()
	c.say(ask("ping"), u32(1), ask("wait"), keys{"/k"})
	c.hear(u32(1))
	if err := s.Set("k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	c.hear(u8(0))
	c.say(ask("get"), "/k")
	c.hear("v")
	if got := s.Stats(); got.Connections != 1 || got.Silent != 0 || got.Keys != 1 || got.Memory == 0 {
		t.Errorf("%+v", got)
	}
}

// Stats are numbers about a server.
type Stats struct {
	Connections, Silent int   // Silent have sent nothing yet
	Keys                int   // init/ included, queues not
	Memory              int64 // bytes of MaxMemory that are used
}

func (s *Server) Stats() Stats {
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	return Stats{n, int(s.silent.Load()), s.store.len(), s.store.budget.used.Load()}
}

// TestCloseEndsEverything: connections that wait, are silent, or have sent a part of a request.
func TestCloseEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	s := listen(t, Options{})
	waits, silent, part := dial(t, s).hello(), dial(t, s), dial(t, s).hello()
	waits.say(ask("ping"), u32(1), ask("wait"), keys{"/k"})
	waits.hear(u32(1))
	part.say(ask("ping"), u32(1), ask("set"), "/k", 100)
	part.hear(u32(1))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []client{waits, silent, part} {
		c.closed()
	}
	// The last thing that a goroutine does is to say that it ends.
	for until := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
	if got := s.Stats(); got != (Stats{}) {
		t.Errorf("left: %+v", got)
	}
}

// TestConnectionsAreBounded: the connections that say nothing, and all.
func TestConnectionsAreBounded(t *testing.T) {
	var log bytes.Buffer
	s := listen(t, Options{MaxConnections: 3, MaxSilent: 2, Log: slog.New(slog.NewTextHandler(&log, nil))})
	speak := func() client {
		c := dial(t, s).hello()
		c.say(ask("num"))
		c.hear(0)
		return c
	}
	a, b := dial(t, s), dial(t, s)
	dial(t, s).closed() // two are silent
	a.hello().say(ask("num"))
	a.hear(0)
	speak() // a speaks, so there is room for another one that is silent at first
	dial(t, s).closed()
	b.hello().say(ask("num"))
	b.hear(0)
	dial(t, s).closed() // three, none of them silent
	s.Close()
	if got := strings.Count(log.String(), "too many connections"); got != 2 { // of the first, second, fourth
		t.Errorf("%d in the log: %s", got, log.String())
	}
}

// TestReasonsAreLogged: what limits refuse always, garbage less and less often.
func TestReasonsAreLogged(t *testing.T) {
	var log bytes.Buffer
	s := listen(t, Options{MaxKey: 8, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 9 {
		c := dial(t, s)
		io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
		io.Copy(io.Discard, c)
	}
	for range 3 {
		c := dial(t, s).hello()
		c.say(ask("get"), "/12345678")
		c.closed()
	}
	s.Close()
	if n := strings.Count(log.String(), "none of torch.distributed"); n != 4 {
		t.Errorf("garbage is logged %d times", n)
	}
	if n := strings.Count(log.String(), `error="a key of 9, at most 8"`); n != 3 {
		t.Errorf("a refusal is logged %d times: %s", n, log.String())
	}
}

// TestAClientThatDoesNotRead is disconnected when it is to get the answer of its wait, instead
// of keeping the client that ended the wait.
func TestAClientThatDoesNotRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, &Server{listener: l})
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	nc.(*net.TCPConn).SetWriteBuffer(4 << 10)
	c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	bad := isolated(Options{}).newConn(nc)
	for sent := 0; err == nil; sent++ {
		if err = bad.writeNow(0); sent > 64<<20 {
			t.Fatal("64 MiB fit into the socket")
		}
	}
	bad.waiter.state.Store(fired)
	bad.notify()
	if n, err := io.Copy(io.Discard, c); n == 0 || err != nil {
		t.Error(n, err)
	}
	if bad.waiter.state.Load() != idle {
		t.Error("the answer still waits")
	}
}

// TestRepliesOfOneClientDelayNobody: a client that does not read its replies keeps only itself.
func TestRepliesOfOneClientDelayNobody(t *testing.T) {
	s := listen(t, Options{})
	if err := s.Set("big", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	bad, good := dial(t, s).hello(), dial(t, s).hello()
	for range 64 {
		bad.say(ask("get"), "/big")
	}
	good.say(ask("ping"), u32(1), ask("wait"), keys{"/k"})
	good.hear(u32(1))
	if err := s.Set("k", nil); err != nil {
		t.Fatal(err)
	}
	good.hear(u8(0))
}

// TestManyClients: all add to a counter, set a key, wait for the key of the next, and meet at a
// barrier; some give up their waits. It is for the race detector.
func TestManyClients(t *testing.T) {
	const clients, rounds = 64, 10
	s := listen(t, Options{})
	var all sync.WaitGroup
	for i := range clients {
		c := dial(t, s).hello()
		all.Go(func() {
			for r := range rounds {
				own, next := fmt.Sprintf("/%d/%d", r, i), fmt.Sprintf("/%d/%d", r, (i+1)%clients)
				c.say(ask("wait"), keys{next})
				c.say(ask("cancel"))
				b := make([]byte, 1)
				_, err := io.ReadFull(c, b)
				if err == nil && b[0] == 0 {
					_, err = io.ReadFull(c, b) // the wait was over before
				}
				if err != nil {
					t.Error(err)
				}
				if b[0] != 1 {
					t.Errorf("cancel is answered %d", b)
				}
				c.say(ask("set"), own, own, ask("wait"), keys{next, own})
				c.hear(u8(0))
				c.say(ask("get"), next)
				c.hear(next)
				c.say(ask("push"), "/q", own, ask("barrier"), fmt.Sprintf("/b/%d", r), clients)
				c.hear(u8(0))
				c.say(ask("append"), "/log", "x", ask("add"), "/n", 1)
				if _, err := io.CopyN(io.Discard, c, 8); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	c := dial(t, s).hello()
	c.say(ask("get"), "/n", ask("len"), "/q", ask("get"), "/log", ask("num"))
	c.hear(fmt.Sprint(clients*rounds), clients*rounds, strings.Repeat("x", clients*rounds), clients*rounds+rounds+2)
}
