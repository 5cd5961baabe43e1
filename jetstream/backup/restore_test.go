package backup

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestAPartWaitsForWhoTakesIt: in a cluster the subscription of the server that restores may be
// known later than its answer.
func TestAPartWaitsForWhoTakesIt(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.WaitForShutdown)
	t.Cleanup(s.Shutdown)
	connect := func() *nats.Conn {
		nc, err := nats.Connect(s.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	sender, taker := connect(), connect()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- deliver(ctx, sender, "parts", []byte("a part"), new(server.ApiResponse)) }()
	for sender.Stats().InMsgs == 0 { // the answer that nobody is there
		select {
		case err := <-ended:
			t.Fatalf("it has not waited: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := taker.Subscribe("parts", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
