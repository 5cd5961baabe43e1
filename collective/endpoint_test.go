package collective

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestANeighbourThatIsEarlyIsKept(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 2)
		old := form(t, eps, 1, nil)
		type made struct {
			c   *Communicator
			err error
		}
		early := make(chan made, 1)
		go func() {
			c, err := New(soon(t), options(eps, 2, 0))
			early <- made{c, err}
		}()
		eventually(t, "the connection is parked", func() bool {
			_, early := eps[1].acceptor.Waiting()
			return early == 1
		})
		// The old generation works on meanwhile.
		mustAll(t, 2, func(r int) error { return old[r].Barrier(soon(t)) })
		c1, err := New(soon(t), options(eps, 2, 1))
		if err != nil {
			t.Fatal(err)
		}
		m := <-early
		if m.err != nil {
			t.Fatal(m.err)
		}
		comms := []*Communicator{m.c, c1}
		for _, g := range [][]*Communicator{old, comms} {
			mustAll(t, 2, func(r int) error { return Allreduce(soon(t), g[r], make([]int64, 1000), Sum) })
		}
		closeAll(old)
		mustAll(t, 2, func(r int) error { return comms[r].Barrier(soon(t)) })
		closeAll(comms)
	})
}

// TestRefusalsSayWhyToWhoKnowsTheToken: to all others they say what they can mean, and nothing of
// the job.
func TestRefusalsSayWhyToWhoKnowsTheToken(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 2)
		current := form(t, eps, 7, nil)
		for want, change := range map[string]func(*Options){
			"another one": func(o *Options) { o.Generation = 6 },
			"no such job": func(o *Options) { o.Job = "other" },
			"token is wr": func(o *Options) { o.Token = "guess" },
			"World is 2":  func(o *Options) { o.World = 3 },
			"ChunkBytes":  func(o *Options) { o.ChunkBytes = 1 },
			"StallAfter":  func(o *Options) { o.StallAfter = time.Minute },
			"connected ":  func(*Options) {},
		} {
			stranger := NewEndpoint(f.listen(t, 10+len(want)*100+int(want[0])))
			o := options(eps, 7, 0)
			o.Endpoint = stranger
			change(&o)
			_, err := New(soon(t), o)
			var no *RefusedError
			if !errors.As(err, &no) || no.Rank != 1 || !strings.Contains(no.Reason, want) {
				t.Errorf("%s: %v", want, err)
			}
			_ = stranger.Close()
		}
		mustAll(t, 2, func(r int) error { return current[r].Barrier(soon(t)) })
		closeAll(current)
		// A late dialer of a generation that has ended is told how it ended.
		stranger := NewEndpoint(f.listen(t, 9999))
		o := options(eps, 7, 0)
		o.Endpoint = stranger
		_, err := New(soon(t), o)
		wantLost(t, 0, err, 1)
		_ = stranger.Close()
	})
}

// TestJobsOfOneFamilyMayBeginOneAfterTheOther: a rank that is in a job waits for another one whose
// name differs after the last slash, as for a later generation.
func TestJobsOfOneFamilyMayBeginOneAfterTheOther(t *testing.T) {
	eps := endpoints(t, fabrics()[0], 2)
	named := func(job string) func(*Options) { return func(o *Options) { o.Job = job } }
	first := form(t, eps, 1, named("family/first"))
	second := func(rank int) (*Communicator, error) {
		o := options(eps, 1, rank)
		named("family/second")(&o)
		return New(soon(t), o)
	}
	early := make(chan error, 1)
	var comms [2]*Communicator
	go func() {
		var err error
		comms[0], err = second(0)
		early <- err
	}()
	eventually(t, "a connection waits", func() bool {
		_, waiting := eps[1].acceptor.Waiting()
		return waiting == 1
	})
	var err error
	if comms[1], err = second(1); err != nil {
		t.Fatal(err)
	}
	if err := <-early; err != nil {
		t.Fatal(err)
	}
	closeAll(first)
	mustAll(t, 2, func(r int) error { return comms[r].Barrier(soon(t)) })
	closeAll(comms[:])
}

func TestNewNamesTheNeighbourThatDoesNotCome(t *testing.T) {
	eps := endpoints(t, fabrics()[1], 3)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	errs := each(2, func(rank int) error {
		_, err := New(ctx, options(eps, 1, rank))
		return err
	})
	for _, err := range errs {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrAborted) {
			t.Error(err)
		}
		if !strings.Contains(err.Error(), "rank 2") {
			t.Error(err)
		}
	}
}

func TestADeadNeighbourEndsNewEverywhere(t *testing.T) {
	f := fabrics()[1]
	eps := endpoints(t, f, 4)
	_ = eps[2].acceptor.Transport().Close()
	errs := each(4, func(rank int) error {
		if rank == 2 {
			return nil
		}
		c, err := New(soon(t), options(eps, 1, rank))
		if err != nil {
			return err
		}
		// Rank 0 has both of its neighbours, and hears of the failure from them.
		defer func() { _ = c.Close() }()
		return c.Barrier(soon(t))
	})
	for rank, err := range errs {
		if rank != 2 {
			wantLost(t, rank, err, 2)
		}
	}
}

func TestGarbageAndSilenceDoNotHarmAnEndpoint(t *testing.T) {
	f := fabrics()[1]
	eps := endpoints(t, f, 2)
	stranger := f.listen(t, 0)
	defer func() { _ = stranger.Close() }()
	for i := range 100 { // more than there are slots for handshakes, some stay open and silent
		conn, err := stranger.Dial(soon(t), eps[i%2].Addr())
		if err != nil {
			t.Fatal(err)
		}
		if i%4 != 0 {
			_, _ = conn.Write([]byte(strings.Repeat(string(rune('a'+i%26)), 10*i)))
			_ = conn.Close()
			continue
		}
		defer func() { _ = conn.Close() }()
	}
	comms := form(t, eps, 1, nil)
	mustAll(t, 2, func(r int) error { return comms[r].Barrier(soon(t)) })
	closeAll(comms)
}

// TestSilentConnectionsKeepNobodyOut: however many there are, and however long the endpoint waits
// for each, a generation can form.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	for _, f := range fabrics()[:2] {
		t.Run(f.name, func(t *testing.T) {
			eps := []*Endpoint{newEndpoint(f.listen(t, 0), time.Hour, false), newEndpoint(f.listen(t, 1), time.Hour, false)}
			defer func() {
				for _, e := range eps {
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				}
			}()
			stranger := f.listen(t, 5)
			defer func() { _ = stranger.Close() }()
			for i := range 300 {
				conn, err := stranger.Dial(soon(t), eps[i%2].Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
			}
			comms := form(t, eps, 1, nil)
			mustAll(t, 2, func(r int) error { return comms[r].Barrier(soon(t)) })
			closeAll(comms)
			for _, e := range eps {
				if n, _ := e.acceptor.Waiting(); n > 64 {
					t.Errorf("%d connections of one source are kept", n)
				}
			}
		})
	}
}
