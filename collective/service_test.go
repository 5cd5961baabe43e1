package collective

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// echo serves requests by sending back what it receives.
func echo(_ context.Context, c net.Conn) { _, _ = io.Copy(c, c) }

func expectText(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("the service says %q, %v", b, err)
	}
}

func TestServiceRunsBesideTheGeneration(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 3)
		comms := form(t, eps[:2], 4, nil)
		service := Service{Job: "job", Generation: 4, Token: "clients", Serve: echo}
		eps[0].SetService(&service)
		c, err := eps[2].DialService(soon(t), eps[0].Addr(), service)
		if err != nil {
			t.Fatal(err)
		}
		expectText(t, c, "hello")
		mustAll(t, 2, func(r int) error { return Allreduce(soon(t), comms[r], make([]int64, 1000), Sum) })
		closeAll(comms) // the end of the generation does not end the request
		expectText(t, c, "still there")
		eps[0].SetService(nil)
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes after the service had ended", n)
		}
		_ = c.Close()
	})
}

func TestServiceRefuses(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 2)
		service := Service{Job: "job", Generation: 4, Token: "clients", Serve: echo}
		refused := func(want string, h Service) {
			t.Helper()
			c, err := eps[1].DialService(soon(t), eps[0].Addr(), h)
			if err == nil {
				_ = c.Close()
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want a refusal with %q", err, want)
			}
		}
		refused("no such job", service)
		eps[0].SetService(&service)
		refused("its generation is another one", Service{Job: "job", Generation: 3, Token: "clients"})
		refused("no such job", Service{Job: "other", Generation: 4, Token: "clients"})
		refused("the token is wrong", Service{Job: "job", Generation: 4, Token: "guess"})
		var open []net.Conn
		for range 4 { // as many as are served at a time
			c, err := eps[1].DialService(soon(t), eps[0].Addr(), service)
			if err != nil {
				t.Fatal(err)
			}
			expectText(t, c, "x")
			open = append(open, c)
		}
		refused("are being served", service)
		_ = open[0].Close()
		eventually(t, "one who leaves makes room", func() bool {
			c, err := eps[1].DialService(soon(t), eps[0].Addr(), service)
			if err == nil {
				open = append(open, c)
			}
			return err == nil
		})
		for _, c := range open {
			_ = c.Close()
		}
	})
}

// TestSetServiceEndsRequestsOfThePreviousOne: a generation fences the requests to the previous one.
func TestSetServiceEndsRequestsOfThePreviousOne(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 2)
		var serving atomic.Int32
		first := Service{Job: "job", Generation: 4, Token: "a", Serve: func(ctx context.Context, c net.Conn) {
			serving.Add(1)
			defer serving.Add(-1)
			echo(ctx, c)
		}}
		eps[0].SetService(&first)
		c, err := eps[1].DialService(soon(t), eps[0].Addr(), first)
		if err != nil {
			t.Fatal(err)
		}
		expectText(t, c, "x")
		eps[0].SetService(&Service{Job: "job", Generation: 5, Token: "b", Serve: echo})
		if n := serving.Load(); n != 0 {
			t.Errorf("%d visits of the service before are being served", n)
		}
		_ = c.Close()
	})
}

func TestReachTellsWhetherSomebodyAnswers(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		eps := endpoints(t, f, 2)
		if err := eps[0].Ping(soon(t), eps[1].Addr(), "job", 3); err != nil {
			t.Errorf("an endpoint without any generation: %v", err)
		}
		comms := form(t, eps, 4, nil)
		for job, g := range map[string]uint64{"job": 3, "other": 9} {
			if err := eps[0].Ping(soon(t), eps[1].Addr(), job, g); err != nil {
				t.Errorf("%s generation %d: %v", job, g, err)
			}
		}
		closeAll(comms)
		closed := eps[1].Addr()
		_ = eps[1].Close()
		if eps[0].Ping(soon(t), closed, "job", 4) == nil {
			t.Error("nobody answers there")
		}
	})
}
