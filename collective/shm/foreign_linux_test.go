package shm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// descriptors counts those of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// mapped counts the pieces of shared memory that are mapped.
func mapped(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "memfd:regroup")
}

// keepsNothing checks that what is run leaves no descriptor and no mapping, without the help of the
// garbage collector. What the end of a context closes is closed soon after, on another goroutine.
func keepsNothing(t testing.TB, run func()) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	fds, maps := descriptors(t), mapped(t)
	run()
	for until := time.Now().Add(patience); ; runtime.Gosched() {
		d, m := descriptors(t), mapped(t)
		if d == fds && m == maps {
			return
		}
		if time.Now().After(until) {
			t.Errorf("%d descriptors and %d mappings were left", d-fds, m-maps)
			return
		}
	}
}

// disbanded is a band that has formed once and keeps nothing of it.
func disbanded(t *testing.T, n int) *band {
	b := newBand(t, n)
	b.close()
	for _, m := range b.maps {
		m.Prune()
	}
	return b
}

// TestForeignClientsAreRefused: any process of the machine can connect to the socket over which
// descriptors are passed.
func TestForeignClientsAreRefused(t *testing.T) {
	b := disbanded(t, 3)
	key := ""
	ours, theirs := make([]net.Conn, 2), make([]net.Conn, 2)
	for i := range ours {
		ours[i], theirs[i] = net.Pipe()
		defer ours[i].Close()
		defer theirs[i].Close()
	}
	keepsNothing(t, func() {
		groups := make([]*Group, 3)
		err := each(3, func(rank int) (err error) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			switch rank {
			case 0:
				groups[0], err = Lead(ctx, ours, b.arenas[0], b.maps[0])
			case 1:
				// Before member 1 says hello, and after it has seen where.
				conn := &tapped{Conn: theirs[0], rung: func(o invitation) {
					key = o.Key
					intrude(t, o)
				}}
				groups[1], err = Join(ctx, 1, 3, conn, b.arenas[1], b.maps[1])
			case 2:
				groups[2], err = Join(ctx, 2, 3, theirs[1], b.arenas[2], b.maps[2])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if key == "" {
			t.Fatal("nobody intruded")
		}
		if err := each(3, func(rank int) error { return groups[rank].Barrier(descriptor(1)) }); err != nil {
			t.Fatal(err)
		}
		for i, g := range groups {
			g.Close()
			b.maps[i].Prune()
		}
	})
}

// tapped is a connection on which the first message is an offer.
type tapped struct {
	net.Conn
	rung func(invitation)
	buf  []byte
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.buf = append(c.buf, p[:n]...)
	var o invitation
	if c.rung != nil && len(c.buf) > 4 && json.Unmarshal(c.buf[4:], &o) == nil {
		c.rung(o)
		c.rung = nil
	}
	return n, err
}

// intrude sends a lot of nonsense to the socket of an offer.
func intrude(t *testing.T, o invitation) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for _, send := range []func(c *net.UnixConn){
		func(*net.UnixConn) {},
		func(c *net.UnixConn) { _, _ = c.Write([]byte("hello")) },
		func(c *net.UnixConn) { _, _ = c.Write(nil) },
		func(c *net.UnixConn) { _ = sendFDs(c, joinRequest{Key: "guess", Rank: 1}, []int{fd}) },
		func(c *net.UnixConn) { _ = sendFDs(c, joinRequest{Rank: 1}, []int{fd, fd, fd}) },
		func(c *net.UnixConn) { _ = sendFDs(c, joinRequest{Key: o.Key, Rank: 0}, []int{fd}) },
		func(c *net.UnixConn) { _ = sendFDs(c, joinRequest{Key: o.Key, Rank: 3}, nil) },
		func(c *net.UnixConn) { _ = sendFDs(c, joinRequest{Key: o.Key, Rank: -1}, nil) },
		func(c *net.UnixConn) { _ = sendFDs(c, joinRequest{Key: o.Key, Rank: 1}, []int{fd, fd}) },
	} {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
		if err != nil {
			t.Error(err)
			return
		}
		send(c)
		_ = c.Close()
	}
}

// TestALeaderThatIsAbandonedKeepsNothing: one member has said hello, the other says that it has,
// and has not.
func TestALeaderThatIsAbandonedKeepsNothing(t *testing.T) {
	b := disbanded(t, 2)
	keepsNothing(t, func() {
		ours, theirs := make([]net.Conn, 2), make([]net.Conn, 2)
		for i := range ours {
			ours[i], theirs[i] = net.Pipe()
			defer ours[i].Close()
			defer theirs[i].Close()
		}
		ctx, cancel := context.WithCancel(context.Background())
		if err := each(3, func(rank int) error {
			var err error
			switch rank {
			case 0:
				_, err = Lead(ctx, ours, b.arenas[0], b.maps[0])
			case 1:
				_, err = Join(ctx, 1, 3, theirs[0], b.arenas[1], b.maps[1])
			case 2:
				var o invitation
				err = errors.Join(receive(theirs[1], &o), send(theirs[1], vote{}))
				cancel()
				return err
			}
			if err == nil {
				t.Errorf("member %d formed a group", rank)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatALeaderHandsOutIsLookedAt: it must be a segment of the right size, and as many arenas as
// there are names.
func TestWhatALeaderHandsOutIsLookedAt(t *testing.T) {
	b := disbanded(t, 2)
	page, err := create("regroup-test", pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := create("regroup-test", segmentBytes(2))
	if err != nil {
		t.Fatal(err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]int{page, whole, null})
	for name, give := range map[string]func(c *net.UnixConn){
		"nothing":       func(*net.UnixConn) {},
		"nonsense":      func(c *net.UnixConn) { _, _ = c.Write([]byte("{")) },
		"a number":      func(c *net.UnixConn) { _, _ = c.Write([]byte("7")) },
		"no names":      func(c *net.UnixConn) { _ = sendFDs(c, attachments{}, []int{whole}) },
		"many names":    func(c *net.UnixConn) { _ = sendFDs(c, attachments{make([]member, 3)}, []int{whole}) },
		"no segment":    func(c *net.UnixConn) { _ = sendFDs(c, attachments{make([]member, 2)}, nil) },
		"a small one":   func(c *net.UnixConn) { _ = sendFDs(c, attachments{make([]member, 2)}, []int{page}) },
		"no memory":     func(c *net.UnixConn) { _ = sendFDs(c, attachments{make([]member, 2)}, []int{null}) },
		"no arena":      func(c *net.UnixConn) { _ = sendFDs(c, attachments{[]member{{Arena: "x"}, {}}}, []int{whole}) },
		"a false arena": func(c *net.UnixConn) { _ = sendFDs(c, attachments{[]member{{Arena: "x"}, {}}}, []int{whole, null}) },
	} {
		keepsNothing(t, func() {
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var joined error
			if err := each(2, func(rank int) error {
				if rank == 1 {
					_, joined = Join(ctx, 1, 2, theirs, b.arenas[1], b.maps[1])
					return nil
				}
				return handOutWrongly(ours, give)
			}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !errors.Is(joined, ErrUnavailable) {
				t.Errorf("%s: %v", name, joined)
			}
			b.maps[1].Prune()
		})
	}
}

// handOutWrongly is a leader of two.
func handOutWrongly(conn net.Conn, give func(*net.UnixConn)) error {
	o, l, err := openInvitation()
	if err != nil {
		return err
	}
	defer l.Close()
	if err := send(conn, o); err != nil {
		return err
	}
	lead := coordinator{conn}
	var failed error
	if _, err := lead.roundWith(func() vote {
		var c *net.UnixConn
		if c, failed = l.AcceptUnix(); failed != nil {
			return vote{}
		}
		defer c.Close()
		var h joinRequest
		var fds []int
		fds, failed = receiveFDs(c, &h)
		closeAll(fds)
		give(c)
		return vote{}
	}); err != nil {
		return err
	}
	_, err = lead.round(vote{})
	return errors.Join(failed, err)
}

// TestLibrariesOfDifferentVersionsShareNoMemory: the messages of the version before had no number.
func TestLibrariesOfDifferentVersionsShareNoMemory(t *testing.T) {
	b := disbanded(t, 2)
	for name, older := range map[string]int{"an older leader": 0, "an older member": 1} {
		keepsNothing(t, func() {
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := each(2, func(rank int) (err error) {
				switch {
				case rank == 0 && older == 0:
					if err = send(ours, struct{ Socket, Key string }{"@regroup-test", "key"}); err == nil {
						_, err = decision(coordinator{ours}.round(vote{}))
					}
				case rank == 0:
					_, err = Lead(ctx, []net.Conn{ours}, b.arenas[0], b.maps[0])
				case older == 0:
					_, err = Join(ctx, 1, 2, theirs, b.arenas[1], b.maps[1])
				default:
					err = joinAsBefore(theirs, b.arenas[1])
				}
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), errOtherVersion.Error()) {
					t.Errorf("%s, member %d: %v", name, rank, err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			b.maps[1].Prune()
		})
	}
}

// joinAsBefore takes part in the first round of a library without versions.
func joinAsBefore(conn net.Conn, arena *Arena) error {
	var o invitation
	if err := receive(conn, &o); err != nil {
		return err
	}
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := sendFDs(socket, struct {
		Key   string
		Rank  int
		Arena string
	}{o.Key, 1, arena.name}, []int{arena.fd}); err != nil {
		return err
	}
	_, err = decision(participant{conn}.round(vote{}))
	return err
}

// TestAsManyDescriptorsAsThereCanBeAreHandedOver: one for the segment and one for each member.
func TestAsManyDescriptorsAsThereCanBeAreHandedOver(t *testing.T) {
	o, l, err := openInvitation()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: o.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	fds, members := make([]int, MaxMembers+1), make([]member, MaxMembers)
	for i := range members {
		members[i] = member{Arena: o.Key, PID: 1 << 22, Address: 1<<56 - 1, Probe: []byte(o.Key)[:16]}
	}
	if err := sendFDs(from, attachments{members}, fds); err != nil {
		t.Fatal(err)
	}
	var got attachments
	fds, err = receiveFDs(to, &got)
	defer closeAll(fds)
	if err != nil || len(fds) != MaxMembers+1 || len(got.Members) != MaxMembers {
		t.Fatalf("%d descriptors and %d names arrived, %v", len(fds), len(got.Members), err)
	}
}

// FuzzForming has the other end of a connection say anything while a group forms.
func FuzzForming(f *testing.F) {
	for _, s := range []string{
		"", "{}", "\x02\x00\x00\x00{}", "\xff\xff\xff\xff", "\x02\x00\x00\x00{}\x02\x00\x00\x00{}\x02\x00\x00\x00{}",
		"\x04\x00\x00\x00null", "\x10\x00\x00\x00{\"Problem\":\"no\"}", "\x0d\x00\x00\x00{\"Socket\":\"\"}", "\x10\x00\x00\x00{\"Socket\":\"@abc\"}",
		"\x1c\x00\x00\x00{\"Version\":2,\"Socket\":\"@abc\"}",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, sent []byte, leads bool) {
		keepsNothing(t, func() {
			ours, theirs := net.Pipe()
			defer ours.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(io.Discard, theirs)
			}()
			go func() {
				_, _ = theirs.Write(sent)
				_ = theirs.Close()
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			var g *Group
			var err error
			if leads {
				g, err = Lead(ctx, []net.Conn{ours}, nil, NewMappingCache())
			} else {
				g, err = Join(ctx, 1, 2, ours, nil, NewMappingCache())
			}
			if err == nil || g != nil {
				t.Errorf("it formed a group with %q", sent)
			}
			_ = ours.Close()
			<-done
		})
	})
}
