package tcpstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
)

// dialect has the numbers of the operations, from the sources of PyTorch.
type dialect struct {
	name  string
	hello string
	ops   map[string]byte
}

var newest = dialect{"newest", "\x00\xce\xf7\x85\x3c", map[string]byte{
	"set": 1, "cas": 2, "get": 3, "add": 4, "check": 5, "wait": 6, "num": 7, "delete": 8, "append": 9, "multiget": 10,
	"multiset": 11, "cancel": 12, "ping": 13, "push": 14, "pop": 15, "len": 16, "list": 17, "barrier": 18,
}}

var dialects = []dialect{
	{"1.13", "", map[string]byte{
		"set": 0, "cas": 1, "get": 2, "add": 3, "check": 4, "wait": 5, "num": 6, "watch": 7, "delete": 8,
	}},
	{"2.0", "", map[string]byte{
		"set": 0, "cas": 1, "get": 2, "add": 3, "check": 4, "wait": 5, "num": 6, "watch": 7, "delete": 8, "append": 9,
		"multiget": 10, "multiset": 11, "cancel": 12,
	}},
	newest,
}

type (
	ask  string // an operation
	keys []string
	u32  uint32
	u8   byte
)

// encode returns the bytes of requests or replies; false if the dialect lacks an operation.
func encode(d dialect, parts ...any) ([]byte, bool) {
	var b []byte
	i64 := func(n int) { b = binary.LittleEndian.AppendUint64(b, uint64(n)) }
	text := func(s string) { i64(len(s)); b = append(b, s...) }
	for _, p := range parts {
		switch p := p.(type) {
		case ask:
			o, ok := d.ops[string(p)]
			if !ok {
				return nil, false
			}
			b = append(b, o)
		case keys:
			i64(len(p))
			for _, k := range p {
				text(k)
			}
		case string:
			text(p)
		case int:
			i64(p)
		case u32:
			b = binary.LittleEndian.AppendUint32(b, uint32(p))
		case u8:
			b = append(b, byte(p))
		}
	}
	return b, true
}

// played is a connection that receives pieces, then the end of the input.
type played struct {
	net.Conn
	pieces [][]byte
	out    bytes.Buffer
	closed bool
}

func (p *played) Read(b []byte) (int, error) {
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.pieces[0])
	if p.pieces[0] = p.pieces[0][n:]; len(p.pieces[0]) == 0 {
		p.pieces = p.pieces[1:]
	}
	return n, nil
}

func (p *played) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p *played) Close() error {
	p.closed = true
	return nil
}

// play serves one connection whose input arrives in pieces; empty ones are left out.
func play(s *Server, pieces ...[]byte) (replies []byte, err error) {
	p := &played{}
	for _, b := range pieces {
		if len(b) > 0 {
			p.pieces = append(p.pieces, b)
		}
	}
	s.silent.Add(1)
	err = s.newConn(p).serve()
	return p.out.Bytes(), err
}

func isolated(o Options) *Server { return newServer(nil, o.defaults()) }

var conversations = []struct {
	name  string
	says  []any
	hears []any
}{
	{"set and get", []any{ask("set"), "/k", "v", ask("get"), "/k"}, []any{"v"}},
	{"an empty value is a value", []any{ask("set"), "/k", "", ask("check"), keys{"/k"}, ask("get"), "/k"}, []any{u8(0), ""}},
	{"an empty key is a key", []any{ask("set"), "", "v", ask("get"), ""}, []any{"v"}},
	{"set again", []any{ask("set"), "/k", "v", ask("set"), "/k", "longer", ask("get"), "/k", ask("num")}, []any{"longer", 1}},
	{"compare with nothing, nothing there", []any{ask("cas"), "/k", "", "new", ask("get"), "/k"}, []any{"new", "new"}},
	{"compare with a value, nothing there", []any{ask("cas"), "/k", "lie", "new", ask("num")}, []any{"lie", 0}},
	{"compare, equal", []any{ask("set"), "/k", "a", ask("cas"), "/k", "a", "b", ask("get"), "/k"}, []any{"b", "b"}},
	{"compare, different", []any{ask("set"), "/k", "a", ask("cas"), "/k", "c", "b", ask("get"), "/k"}, []any{"a", "a"}},
	{"compare with nothing, a value there", []any{ask("set"), "/k", "a", ask("cas"), "/k", "", "b"}, []any{"a"}},
	{"compare creates an empty key", []any{ask("cas"), "/k", "", "", ask("num")}, []any{"", 1}},
	{"add", []any{ask("add"), "init/", 1, ask("add"), "init/", 5, ask("add"), "init/", -2, ask("get"), "init/", ask("num")}, []any{1, 6, 4, "4", 1}},
	{"add nothing to nothing", []any{ask("add"), "/n", 0, ask("get"), "/n"}, []any{0, "0"}},
	{"add to text as strtoll reads it", []any{
		ask("set"), "/n", " 7", ask("add"), "/n", 1, ask("set"), "/n", "12abc", ask("add"), "/n", 1, ask("set"), "/n", "\t-3", ask("add"), "/n", 0, ask("set"), "/n", "+4.9", ask("add"), "/n", 0,
	}, []any{8, 13, -3, 4}},
	{"add wraps around", []any{ask("set"), "/n", "9223372036854775807", ask("add"), "/n", 1}, []any{-9223372036854775808}},
	{"check", []any{ask("set"), "/a", "", ask("check"), keys{"/a", "/b"}, ask("check"), keys{"/a", "/a"}, ask("check"), keys{}}, []any{u8(1), u8(0), u8(0)}},
	{"wait for what is there", []any{ask("set"), "/a", "", ask("wait"), keys{"/a", "/a"}, ask("wait"), keys{}, ask("num")}, []any{u8(0), u8(0), 1}},
	{"a request ends a wait", []any{ask("wait"), keys{"/a"}, ask("set"), "/a", "v", ask("get"), "/a"}, []any{"v"}},
	{"delete", []any{ask("set"), "/k", "v", ask("delete"), "/k", ask("delete"), "/k", ask("num")}, []any{1, 0, 0}},
	{"watch is answered", []any{ask("watch"), "/k", ask("set"), "/k", "v", ask("num")}, []any{u8(3), 1}},
	{"append", []any{ask("append"), "/k", "po", ask("append"), "/k", "ta", ask("append"), "/k", "to", ask("get"), "/k"}, []any{"potato"}},
	{"multi", []any{ask("multiset"), 2, "/a", "1", "/b", "", ask("multiget"), keys{"/b", "/a", "/b"}, ask("multiset"), 0, ask("multiget"), keys{}}, []any{"", "1", ""}},
	{"cancel without a wait", []any{ask("cancel"), ask("cancel")}, []any{u8(1), u8(1)}},
	{"cancel a wait", []any{ask("wait"), keys{"/a"}, ask("cancel"), ask("set"), "/a", "", ask("num")}, []any{u8(1), 1}},
	{"ping", []any{ask("ping"), u32(0xdeadbeef), ask("num")}, []any{u32(0xdeadbeef), 0}},
	{"queue", []any{
		ask("push"), "/q", "1", ask("push"), "/q", "2", ask("len"), "/q", ask("num"), ask("check"), keys{"/q"}, ask("pop"), "/q", ask("pop"), "/q", ask("pop"), "/q", ask("len"), "/q",
	}, []any{2, 0, u8(0), 2, "1", 1, "2", 0, 0}},
	{"wait for a queue that has an item", []any{ask("push"), "/q", "1", ask("wait"), keys{"/q"}}, []any{u8(0)}},
	{"delete leaves queues", []any{ask("push"), "/q", "1", ask("delete"), "/q", ask("len"), "/q"}, []any{0, 1}},
	{"list", []any{ask("list"), ask("set"), "/k", "v", ask("push"), "/q", "1", ask("list")}, []any{0, 1, "/k"}},
	{"barrier of one", []any{ask("barrier"), "/b", 1, ask("get"), "/b", ask("barrier"), "/b", 1}, []any{u8(0), "1", u8(0)}},
	{"cancel a barrier", []any{ask("barrier"), "/b", 2, ask("cancel"), ask("get"), "/b"}, []any{u8(1), "1"}},
	{"get and multiget of what is absent", []any{ask("ping"), u32(1), ask("get"), "/k", ask("multiget"), keys{"/k", "/l"}}, []any{u32(1), "", "", ""}},
}

// TestConversations plays each conversation in every dialect that has its operations: in one piece,
// byte by byte, and cut in two at every place.
func TestConversations(t *testing.T) {
	for _, d := range dialects {
		for _, c := range conversations {
			says, ok := encode(d, c.says...)
			if !ok {
				continue
			}
			says = append([]byte(d.hello), says...)
			want, _ := encode(d, c.hears...)
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				check := func(cut string, pieces ...[]byte) {
					s := isolated(Options{})
					got, err := play(s, pieces...)
					if !bytes.Equal(got, want) || !errors.Is(err, io.EOF) {
						t.Fatalf("%s: %q, %v, want %q", cut, got, err, want)
					}
					checkEmptied(t, s)
				}
				check("in one piece", says)
				bytewise := make([][]byte, len(says))
				for i := range says {
					bytewise[i] = says[i : i+1]
					check("cut in two", says[:i], says[i:])
				}
				check("byte by byte", bytewise...)
			})
		}
	}
}

// checkEmptied checks that nothing but the keys and queues is left of connections that have ended.
func checkEmptied(t *testing.T, s *Server) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	want := int64(0)
	for k, v := range s.store.values {
		want += int64(len(k)) + v.cost
	}
	for k, q := range s.store.queues {
		want += int64(len(k))
		for _, v := range q {
			want += v.cost
		}
	}
	if used := s.store.budget.used.Load(); used != want || len(s.store.waiting) > 0 {
		t.Errorf("%d bytes are used, want %d; %d keys are waited for", used, want, len(s.store.waiting))
	}
}

// TestBytes has requests and replies as they were captured between PyTorch's clients and servers.
func TestBytes(t *testing.T) {
	for _, c := range []struct{ name, says, hears string }{
		{
			"1.13 set, compare_set", "\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00/k" + "\x01\x00\x00\x00\x00\x00\x00\x00v" +
				"\x01" + "\x02\x00\x00\x00\x00\x00\x00\x00/k" + "\x01\x00\x00\x00\x00\x00\x00\x00v" + "\x01\x00\x00\x00\x00\x00\x00\x00w",
			"\x01\x00\x00\x00\x00\x00\x00\x00w",
		},
		{
			"1.13 add, num_keys, wait, delete_key", "\x03\x02\x00\x00\x00\x00\x00\x00\x00/n\x05\x00\x00\x00\x00\x00\x00\x00" + "\x03\x02\x00\x00\x00\x00\x00\x00\x00/n\xfe\xff\xff\xff\xff\xff\xff\xff" +
				"\x06" + "\x05\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00/n" + "\x08\x02\x00\x00\x00\x00\x00\x00\x00/n",
			"\x05\x00\x00\x00\x00\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00",
		},
		{
			"2.15 connect", "\x00\xce\xf7\x85\x3c" + "\x0d\x39\x30\x00\x00" + "\x04\x05\x00\x00\x00\x00\x00\x00\x00init/\x01\x00\x00\x00\x00\x00\x00\x00",
			"\x39\x30\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00",
		},
	} {
		got, err := play(isolated(Options{}), []byte(c.says))
		if string(got) != c.hears || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.hears)
		}
	}
}

// TestRefusals: what is over a bound or makes no sense closes the connection with a reason.
func TestRefusals(t *testing.T) {
	small := Options{MaxKey: 8, MaxValue: 100_000, MaxKeys: 3, MaxMemory: 400_000}
	for _, c := range []struct {
		name   string
		says   []any
		reason string
		only   string // dialect
	}{
		{"a long key", []any{ask("set"), "/12345678", "v"}, "a key of 9, at most 8", ""},
		{"a long value", []any{ask("set"), "/k", strings.Repeat("v", 100_001)}, "a value of 100001, at most 100000", ""},
		{"a huge key", []any{ask("get"), -1}, "a key of 18446744073709551615, at most 8", ""},
		{"many keys", []any{ask("check"), keys{"a", "b", "c", "d"}}, "a list of keys of 4, at most 3", ""},
		{"no memory", []any{ask("multiset"), 3, "a", strings.Repeat("v", 100_000), "b", strings.Repeat("v", 100_000), "c", strings.Repeat("v", 100_000)}, errMemory.Error(), ""},
		{"add to a word", []any{ask("set"), "/k", "x", ask("add"), "/k", 1}, errNumber.Error(), ""},
		{"add to nothing", []any{ask("set"), "/k", "", ask("add"), "/k", 1}, errNumber.Error(), ""},
		{"add to too much", []any{ask("set"), "/k", "9223372036854775808", ask("add"), "/k", 1}, errNumber.Error(), ""},
		{"barrier at a word", []any{ask("set"), "/k", "-", ask("barrier"), "/k", 1}, errNumber.Error(), ""},
		{"get of what is absent", []any{ask("num"), ask("get"), "/k"}, errAbsent.Error(), "1.13"},
		{"multiget of what is absent", []any{ask("num"), ask("multiget"), keys{"/k"}}, errAbsent.Error(), "2.0"},
		{"no operation", []any{ask("num"), u8(19)}, "no operation 19", ""},
		{"an operation of the newest", []any{ask("num"), u8(13), u32(1)}, "no operation 13", "2.0"},
		{"validate twice", []any{ask("num"), u8(0), u32(magic)}, "no operation 0", "newest"},
		{"HTTP", []any{u8('G'), u8('E'), u8('T'), u8(' ')}, "no operation 71", ""},
	} {
		for _, d := range dialects {
			says, ok := encode(d, c.says...)
			if !ok || c.only != "" && c.only != d.name {
				continue
			}
			s := isolated(small)
			if _, err := play(s, []byte(d.hello), says); err == nil || err.Error() != c.reason {
				t.Errorf("%s, %s: %v, want %s", d.name, c.name, err, c.reason)
			}
			checkEmptied(t, s)
		}
	}
	if _, err := play(isolated(small), []byte("\x00\xce\xf7\x85\x3d\x00\x00\x00\x00")); err == nil || !strings.Contains(err.Error(), "a key of") {
		t.Errorf("another magic number: %v", err)
	}
}

// TestALengthCostsNothing: memory for a value is allocated as it arrives.
func TestALengthCostsNothing(t *testing.T) {
	says, _ := encode(newest, ask("set"), "/k", 8<<20)
	says = append([]byte(newest.hello), says...)
	s := isolated(Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := play(s, says, []byte("the first bytes")); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<20 {
		t.Errorf("%d bytes were allocated", spent)
	}
	checkEmptied(t, s)
}
