package boot

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// buffer is a log that is read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) has(text string, times int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text) >= times
}

// TestANewTokenIsUnpacked from the file that a process was given, and from the one that it keeps;
// others change nothing, and it is said why.
func TestANewTokenIsUnpacked(t *testing.T) {
	d, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	made := func(server string) string {
		text, err := d.JoinToken("node-a", server)
		if err != nil {
			t.Fatal(err)
		}
		return text + "\n"
	}
	if _, err := d.Issue(access.Identity{Role: access.RoleAgent, Name: "node-a", Node: "node-a"}, 0); err != nil {
		t.Fatal(err)
	}
	first := made("nats://127.0.0.1:4222")
	file := filepath.Join(t.TempDir(), "token")
	put := func(path, text string) {
		t.Helper()
		if err := durable.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put(file, first)
	kept, err := KeepToken(filepath.Join(t.TempDir(), "join"), first)
	if err != nil {
		t.Fatal(err)
	}
	refused := errcode.Errorf(errcode.Invalid, "not for this node")
	log, check := &buffer{}, func(j identity.Join) error {
		if strings.HasSuffix(j.Servers, ":1") {
			return refused
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		TokenFollower{File: file, Used: kept, Check: check}.Run(ctx, slog.New(slog.NewTextHandler(log, nil)))
	}()
	defer func() { cancel(); <-ended }()
	until := func(what string, ok func() bool) {
		t.Helper()
		tokenLimit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := wait.Until(tokenLimit, 5*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, log.text.String())
		}
	}
	used := func() bool { // by the connection
		now, err := os.ReadFile(kept.Creds)
		want, wrong := os.ReadFile(d.Credentials("node-a"))
		return err == nil && wrong == nil && bytes.Equal(now, want)
	}
	rotate := func() {
		if _, err := d.Rotate("node-a", true); err != nil {
			t.Fatal(err)
		}
	}
	rotate()
	put(file, made("nats://127.0.0.1:4222"))
	until("the file that was given has another", used)
	if again, err := LoadToken(kept.dir); err != nil || again.text == kept.text {
		t.Errorf("the new one is not kept: %v", err)
	}
	rotate()
	put(filepath.Join(kept.dir, tokenFile), made("nats://127.0.0.1:4333"))
	until("the one that is kept was replaced", used)
	until("another address is said", func() bool { return log.has("after the next start", 1) })

	before, err := os.ReadFile(kept.Creds)
	if err != nil {
		t.Fatal(err)
	}
	rotate()
	if _, err := d.Issue(access.Identity{Role: access.RoleAgent, Name: "node-b", Node: "node-b"}, 0); err != nil {
		t.Fatal(err)
	}
	another, err := d.JoinToken("node-b", "nats://127.0.0.1:4222")
	if err != nil {
		t.Fatal(err)
	}
	for n, text := range []string{another, made("nats://127.0.0.1:1"), first[:700], "none"} {
		put(file, text)
		until("it says why", func() bool { return log.has("a new join token is not used", n+1) })
	}
	if now, err := os.ReadFile(kept.Creds); err != nil || !bytes.Equal(now, before) {
		t.Errorf("a token that is not used was unpacked: %v", err)
	}
	for _, message := range []string{"it is of node-b (agent), ", "not for this node", "incomplete or damaged", "is no join token"} {
		if !log.has(message, 1) {
			t.Errorf("the log lacks %q:\n%s", message, log.text.String())
		}
	}
	if log.has(first[20:60], 1) {
		t.Error("the log has a token")
	}
	put(file, made("nats://127.0.0.1:4333"))
	until("a good one is used then", used)
}
