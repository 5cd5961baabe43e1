package control

import (
	"net"
	"testing"

	"pgregory.net/rapid"
)

// TestConnLimiter: it keeps its limits, and a source with fewer than the largest share is never
// evicted by others.
func TestConnLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perSource, total = 4, 10
		w := newConnLimiter[int](perSource, total)
		in, next := map[int]string{}, 0
		count := func(s string) (n int) {
			for _, x := range in {
				if x == s {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(0, 200).Draw(t, "acts") {
			if len(in) > 0 && rapid.IntRange(0, 3).Draw(t, "leave") == 0 {
				item := rapid.SampledFrom(w.list()).Draw(t, "who")
				if !w.remove(item) || w.remove(item) {
					t.Fatal("it was not there, or twice")
				}
				delete(in, item)
				continue
			}
			next++
			from := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "source")
			most := 0
			for _, s := range in {
				most = max(most, count(s))
			}
			out, over := w.add(next, from)
			if over != (count(from) == perSource || len(in) == total) {
				t.Fatalf("over is %v with %d of %s and %d in all", over, count(from), from, len(in))
			}
			if over {
				if s := in[out]; s != from && count(s) < most {
					t.Fatalf("%s has %d and is put out, another has %d", s, count(s), most)
				}
				for item, s := range in {
					if s == in[out] && item < out {
						t.Fatalf("%d is put out, %d is older", out, item)
					}
				}
				delete(in, out)
			}
			in[next] = from
			if len(w.list()) != len(in) || len(in) > total || count(from) > perSource {
				t.Fatalf("%d are in it, want %d", len(w.list()), len(in))
			}
		}
		if len(w.clear()) != len(in) || len(w.list()) != 0 {
			t.Fatal("clear leaves some")
		}
	})
}

type from struct {
	net.Conn
	addr net.TCPAddr
}

func (f from) RemoteAddr() net.Addr { return &f.addr }

func TestSource(t *testing.T) {
	for ip, want := range map[string]string{
		"10.0.0.7": "10.0.0.7", "::ffff:10.0.0.7": "10.0.0.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
	} {
		if got := sourceOf(from{addr: net.TCPAddr{IP: net.ParseIP(ip), Port: 4001}}); got != want {
			t.Errorf("%s is of %s, want %s", ip, got, want)
		}
	}
}
