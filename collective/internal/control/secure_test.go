package control

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// wire is a connection that keeps what is written to it until the other end reads, so that a test
// can change it meanwhile.
type wire struct {
	net.Conn
	bytes.Buffer
	most int // bytes that are read at a time; 0 = any
}

func (w *wire) Read(p []byte) (int, error) {
	if w.most > 0 && len(p) > w.most {
		p = p[:w.most]
	}
	return w.Buffer.Read(p)
}
func (w *wire) Write(p []byte) (int, error) { return w.Buffer.Write(p) }

// ends returns both ends of a wire, the first of which writes.
func ends(t *testing.T, w *wire, sum string) (from, to net.Conn) {
	t.Helper()
	from, errFrom := secure(w, "token", []byte("challenge"), []byte(sum), true)
	to, errTo := secure(w, "token", []byte("challenge"), []byte(sum), false)
	if err := errors.Join(errFrom, errTo); err != nil {
		t.Fatal(err)
	}
	return from, to
}

func TestWhatIsEncryptedArrives(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{0, 1, 1000} {
		w := &wire{most: most}
		from, to := ends(t, w, "sum")
		var want []byte
		for _, n := range []int{1, 0, 3, maxRecord - 1, maxRecord, maxRecord + 1, 3*maxRecord + 5} {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(random.Uint32())
			}
			if sent, err := from.Write(p); sent != n || err != nil {
				t.Fatalf("%d of %d bytes, %v", sent, n, err)
			}
			want = append(want, p...)
		}
		if bytes.Contains(w.Bytes(), want[len(want)-64:]) {
			t.Fatal("it can be read on the way")
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes at a time: something else arrives, %v", most, err)
		}
	}
}

// TestWhatIsChangedOnItsWayIsRefused: each byte of a record, and records that are repeated, left
// out or moved. No byte of a changed record is passed on.
func TestWhatIsChangedOnItsWayIsRefused(t *testing.T) {
	record := func(from net.Conn, w *wire, text string) []byte {
		if _, err := from.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		b := bytes.Clone(w.Bytes())
		w.Reset()
		return b
	}
	w := &wire{}
	from, _ := ends(t, w, "sum")
	first, second := record(from, w, "first"), record(from, w, "second")
	other, _ := ends(t, w, "sum of another handshake")
	foreign := record(other, w, "first")
	_, back := ends(t, w, "sum")
	reflected := record(back, w, "first")
	if bytes.Equal(first, foreign) || bytes.Equal(first, reflected) {
		t.Fatal("two connections or directions have one key")
	}
	attempts := map[string][]byte{"repeated": append(bytes.Clone(first), first...), "left out": second, "of another connection": foreign, "sent back": reflected}
	for i := range first {
		changed := bytes.Clone(first)
		changed[i] ^= 1
		attempts["byte "+string(rune('A'+i))] = append(changed, second...)
	}
	for name, text := range attempts {
		_, to := ends(t, w, "sum")
		w.Reset()
		w.Buffer.Write(text)
		got := make([]byte, 100)
		n, err := 0, error(nil)
		for n < 6 && err == nil { // "first" and a byte more
			var k int
			k, err = to.Read(got[n:])
			n += k
		}
		want := ""
		if name == "repeated" {
			want = "first"
		}
		// A length that is larger than the record waits for more, which never opens.
		if string(got[:n]) != want || !errors.Is(err, errForged) && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, %v", name, got[:n], err)
		}
	}
}

// TestADeadlineLosesNothing: a read that is interrupted within a record goes on where it was.
func TestADeadlineLosesNothing(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	to, err := secure(b, "token", []byte("challenge"), []byte("sum"), false)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	from, _ := ends(t, w, "sum")
	if _, err := from.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	text := w.Bytes()
	got := make([]byte, 5)
	for i := range text {
		if err := to.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %d bytes: %v", i, err)
		}
		if err := to.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		wrote := make(chan error, 1)
		go func() { _, err := a.Write(text[i : i+1]); wrote <- err }()
		if s, ok := to.(*secureConn); i < len(text)-1 && ok {
			if err := s.fill(); err != nil {
				t.Fatal(err)
			}
		} else if n, err := to.Read(got); err != nil || string(got[:n]) != "hello" {
			t.Fatalf("%q, %v", got[:n], err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
}

// TestARecordThatWasCutOffEndsTheConnection: what follows could not be understood. One of which
// nothing was sent can be sent again.
func TestARecordThatWasCutOffEndsTheConnection(t *testing.T) {
	for _, passed := range []int{0, 10} {
		a, b := net.Pipe()
		c, err := secure(a, "token", []byte("challenge"), []byte("sum"), true)
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() { _, err := io.ReadFull(b, make([]byte, passed)); read <- err }()
		if err := c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Write([]byte("hello")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v", n, err)
		}
		if err := errors.Join(<-read, c.SetWriteDeadline(time.Time{})); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, b) }()
		if n, err := c.Write([]byte("hello")); (passed > 0) != errors.Is(err, errCut) || passed == 0 && n != 5 {
			t.Errorf("after %d bytes: %d, %v", passed, n, err)
		}
		_, _ = a.Close(), b.Close()
	}
}

// TestNoTwoHellosAreTheSame: keys are derived from them, so that what an acceptor repeats gives no
// key again.
func TestNoTwoHellosAreTheSame(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		a, b := net.Pipe()
		go func() { _, _, _, _ = introduce(t.Context(), a, "token", probing("job", 7)) }()
		if _, err := b.Write(greeting(make([]byte, challengeLen))); err != nil {
			t.Fatal(err)
		}
		body, _, _, err := readHello(b)
		if err != nil {
			t.Fatal(err)
		}
		seen[string(body)] = true
		_, _ = a.Close(), b.Close()
	}
	if len(seen) != 2 {
		t.Error("a dialer has said the same twice")
	}
}
