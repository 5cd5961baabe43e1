package discovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

func written(h Hosts) string {
	var out []string
	for _, l := range h.Lines {
		if l.Slots == nil {
			out = append(out, l.Host)
		} else {
			out = append(out, fmt.Sprintf("%s=%d", l.Host, *l.Slots))
		}
	}
	return strings.Join(out, " ")
}

func TestParseHosts(t *testing.T) {
	for _, c := range []struct {
		text    string
		perHost int
		want    string
	}{
		{"", 0, ""},
		{"\n  \n# nobody yet\n", 0, ""},
		{"node-b:4\nnode-a:2\n", 0, "node-b=4 node-a=2"}, // in the order of the source
		{"a\nb:2", 8, "a=8 b=2"},
		{"a\nb", 0, "a b"},
		{"z:0", 0, "z=0"},
		{"  a:4\t# the old one\r\nb # 2", 0, "a=4 b"},
		{"gpu-7 slots=4\n10.0.0.8\tslots=2", 0, "gpu-7=4 10.0.0.8=2"},
		{"[::1]:4\n[fe80::1]", 0, "::1=4 fe80::1"},
		{"Gpu-1.Rack_2.example.:3", 0, "Gpu-1.Rack_2.example.=3"},
	} {
		h, err := parseHosts(c.text, c.perHost)
		if got := written(h); err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

func TestParseHostsReportsAllErrors(t *testing.T) {
	text := `a:4
a:2
b:x
:3
c:
::1:4
[::1:4
[10.0.0.1]:2
[::1]2
d slots=2 max_slots=4
e:2 slots=2
f slots=
b%d
A.b:-1
localhost
127.0.0.1
g.h
g-h
i:99999999999
...
k:+1`
	_, err := parseHosts(text, 0)
	want := `line 2: "a" names the same host as "a" of line 1: write each host once
line 3: "x" is not a number of slots: write 0 to 65536
line 4: the host is missing
line 5: "c:" has a colon and no slots
line 6: "::1:4" has several colons: an IPv6 address is written in brackets, [::1] or [::1]:4
line 7: "[::1:4" has no closing bracket
line 8: "10.0.0.1" is not an IPv6 address
line 9: "2" follows the closing bracket: write [::1]:slots
line 10: "max_slots=4" is not understood after the host: only slots=N is
line 11: the slots of "e" are given twice
line 12: "?" is not a number of slots: write 0 to 65536
line 13: "b%d" is not a host: it contains "%"
line 14: "-1" is not a number of slots: write 0 to 65536
line 16: "127.0.0.1" names the same host as "localhost" of line 15: write each host once
line 18: "g-h" names the same host as "g.h" of line 17: write each host once
line 19: "99999999999" is not a number of slots: write 0 to 65536
line 20: "..." is not a host
line 21: "+1" is not a number of slots: write 0 to 65536`
	var got []string
	for _, f := range errcode.FieldErrorsOf(err) {
		got = append(got, f.String())
	}
	if !errors.Is(err, errcode.ErrInvalid) || strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	_, err = parseHosts(strings.Repeat("?\n", 1000), 0)
	if n := len(errcode.FieldErrorsOf(err)); n != mostFindings+1 || !strings.Contains(err.Error(), "and 980 more") {
		t.Errorf("%d findings of a thousand bad lines: %v", n, err)
	}
	for _, list := range []string{",", "a:2,,b", "a,b,a", "a:2 b:2"} {
		if _, err := parseHostList(list, 0); !errors.Is(err, errcode.ErrInvalid) {
			t.Errorf("list %q: %v", list, err)
		}
	}
	if h, err := parseHostList("b:4, a:2,[::1]", 1); err != nil || written(h) != "b=4 a=2 ::1=1" {
		t.Errorf("%q, %v", written(h), err)
	}
}

func TestLineOfANode(t *testing.T) {
	h, err := parseHosts("gpu-1.example:1\n10.0.0.2:2\n[fd00::3]:3\nlocalhost:4\nnode-e:5\n10.0.0.6:6", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		node       ident.NodeID
		advertised string
		want       int // slots; 0 = no line
	}{
		{"gpu-1-example", "10.0.0.1", 1},     // NodeIDFrom(host)
		{"gpu-1", "10.0.0.1", 0},             // another name
		{"gpu-9", "GPU-1.example.", 1},       // it advertises the name
		{"gpu-2", "10.0.0.2", 2},             // or the address
		{"gpu-3", "fd00:0:0::3", 3},          // however that is written
		{"gpu-4", "::1", 4},                  // a node of this machine
		{"node-e", "10.0.0.6", 5},            // its name takes precedence over its address
		{"node-f", "10.0.0.66", 0},           // not in the list
		{"10-0-0-2", "elsewhere.example", 2}, // named after its address
	} {
		got := 0
		if i := h.Of(c.node, c.advertised); i > 0 {
			got = *h.Lines[i-1].Slots
		}
		if got != c.want {
			t.Errorf("%s at %s has %d slots, want %d", c.node, c.advertised, got, c.want)
		}
	}
}

func FuzzParseHosts(f *testing.F) {
	for _, s := range []string{"a:4\nb", "[::1]:4", "a slots=4 # x", "a:4,b:2", "a\na", "[", "::1", ":", "\x00", "a:-1", "[::1%eth0]:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHosts(text, 2)
		if err != nil {
			if !errors.Is(err, errcode.ErrInvalid) || len(errcode.FieldErrorsOf(err)) == 0 || len(h.Lines) > 0 {
				t.Fatalf("%q: %v %v", text, h, err)
			}
			return
		}
		if len(h.Lines) > strings.Count(text, "\n")+1 {
			t.Fatalf("%q has %d hosts", text, len(h.Lines))
		}
		var again strings.Builder
		seen := map[string]bool{}
		for _, l := range h.Lines {
			if l.Slots == nil || *l.Slots < 0 || l.Host == "" || seen[l.Host] {
				t.Fatalf("%q: line %+v", text, l)
			}
			seen[l.Host] = true
			if i := h.Of(ident.NodeIDFrom(l.Host), ""); i == 0 || h.Lines[i-1].Host != l.Host {
				t.Fatalf("%q: %q is not found by its own name", text, l.Host)
			}
			host := l.Host
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			fmt.Fprintf(&again, "%s:%d\n", host, *l.Slots)
		}
		if back, err := parseHosts(again.String(), 0); err != nil || written(back) != written(h) {
			t.Fatalf("%q was read as %q, which is read as %q (%v)", text, written(h), written(back), err)
		}
		_, _ = parseHostList(text, 0)
	})
}
