package backup

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// plain starts a server without streams, whose part a test takes, and returns connections to it.
func plain(t *testing.T) func() *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.WaitForShutdown)
	t.Cleanup(s.Shutdown)
	return func() *nats.Conn {
		nc, err := nats.Connect(s.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
}

// TestARequestWhoseAnswerIsLostIsMadeAgain: the servers of a cluster that has just begun may not
// know the way back yet.
func TestARequestWhoseAnswerIsLostIsMadeAgain(t *testing.T) {
	connect := plain(t)
	taker, asks := connect(), 0
	answer := func(m *nats.Msg, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(b)
	}
	for subject, respond := range map[string]nats.MsgHandler{
		apiRestore + "X": func(m *nats.Msg) {
			if asks++; asks > 1 {
				answer(m, server.JSApiStreamRestoreResponse{DeliverSubject: "parts"})
			}
		},
		"parts": func(m *nats.Msg) {
			if len(m.Data) > 0 {
				_ = m.Respond(nil)
				return
			}
			answer(m, server.JSApiStreamCreateResponse{StreamInfo: &server.StreamInfo{Config: server.StreamConfig{Storage: server.FileStorage}, State: server.StreamState{LastSeq: 7}}})
		},
	} {
		if _, err := taker.Subscribe(subject, respond); err != nil {
			t.Fatal(err)
		}
	}
	if err := taker.Flush(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("messages"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := restoreStream(t.Context(), connect(), dir, Stream{
		Name: "X", File: "x", Config: server.StreamConfig{Name: "X", Storage: server.FileStorage}, State: server.StreamState{LastSeq: 7},
	})
	if err != nil || asks != 2 {
		t.Errorf("after %d requests: %v", asks, err)
	}
}

// TestAPartWaitsForWhoTakesIt: in a cluster the subscription of the server that restores may be
// known later than its answer.
func TestAPartWaitsForWhoTakesIt(t *testing.T) {
	connect := plain(t)
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
