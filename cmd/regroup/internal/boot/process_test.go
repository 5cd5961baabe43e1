package boot

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// TestFilesOfTheConnectionAreUsed checks that a missing file is named, without a hint about the
// server, which was not tried.
func TestFilesOfTheConnectionAreUsed(t *testing.T) {
	const missing = "/no/such/file"
	for name, c := range map[string]Config{
		"credentials": {Creds: missing}, "authority": {TLSCA: missing}, "certificate": {TLSCert: missing, TLSKey: missing},
	} {
		c.Server, c.LogFormat, c.Wait = "nats://127.0.0.1:1", "text", 5*time.Second
		_, err := Open(t.Context(), c, "test", nil)
		if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), missing) || strings.Contains(err.Error(), "does it run") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Open(t.Context(), Config{Server: "nats://127.0.0.1:1", LogFormat: "text", Wait: 50 * time.Millisecond}, "test", nil)
	if errcode.Of(err) != errcode.Unavailable || !strings.Contains(err.Error(), "does it run") {
		t.Errorf("nobody there: %v", err)
	}
}

func untilDone(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }

func TestBoth(t *testing.T) {
	boom := errors.New("boom")
	ended := false
	slow := func(ctx context.Context) error { err := untilDone(ctx); ended = true; return err }
	if err := Both(t.Context(), slow, func(context.Context) error { return boom }); !errors.Is(err, boom) || !ended {
		t.Errorf("got %v (the other ended: %v), want boom", err, ended)
	}
	if err := Both(t.Context(), func(context.Context) error { return nil }, untilDone); err != nil {
		t.Errorf("got %v, want nothing", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(boom)
	if err := Both(ctx, untilDone, untilDone); !errors.Is(err, boom) {
		t.Errorf("got %v, want the parent's cause", err)
	}
}

// TestExpiredCredentialsAreToldBeforeTheyAreRefused: no server is needed for it.
func TestExpiredCredentialsAreToldBeforeTheyAreRefused(t *testing.T) {
	d, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Issue(access.Identity{Role: access.RoleClient, Name: "ada"}, time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	c := Config{Server: "nats://127.0.0.1:1", Creds: d.Credentials("ada"), LogFormat: "text", Wait: time.Minute}
	if _, err := Open(t.Context(), c, NameClient, nil); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "ada.creds: the credentials of ada have expired at ") {
		t.Errorf("%v", err)
	}
}
