package jetstream_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// elsewhere is a machine that has a copy of a user's credentials.
func (g *guarded) elsewhere(t *testing.T, user string) (path string, copied func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "user.creds")
	copied = func() {
		t.Helper()
		text, err := os.ReadFile(g.dir.Credentials(user))
		jetstreamtest.Must(t, err)
		jetstreamtest.Must(t, durable.WriteFile(path, text))
	}
	copied()
	return path, copied
}

// connectElsewhere issues a user, and connects it with a copy of its credentials.
func (g *guarded) connectElsewhere(t *testing.T, r access.Role, log *slog.Logger) (c *jetstream.Conn, i access.Identity, path string, copied func()) {
	t.Helper()
	i = g.issue(t, r, 0)
	path, copied = g.elsewhere(t, i.Name)
	o := g.options(i.Name)
	o.Credentials, o.Logger = path, log
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), o)
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	return c, i, path, copied
}

// TestChangedCredentialsAreUsedAtOnce: the connection is made anew with the identity of the file,
// so the end of the old one ends nothing.
func TestChangedCredentialsAreUsedAtOnce(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	c, i, path, copied := g.connectElsewhere(t, access.RoleClient, nil)
	old, err := os.ReadFile(path)
	jetstreamtest.Must(t, err)

	_, err = g.dir.Rotate(i.Name, true)
	jetstreamtest.Must(t, err)
	copied()
	jetstreamtest.Await(t, "it has connected with the new credentials", func() bool { return c.Connects() == 2 && c.Connected() })
	jetstreamtest.Retry(t, "ask", func(ctx context.Context) error { return c.Ready(ctx) })

	revoked := filepath.Join(t.TempDir(), "old.creds")
	jetstreamtest.Must(t, os.WriteFile(revoked, old, 0o600))
	jetstreamtest.Must(t, g.dir.RevokeOld(i.Name))
	stale := g.options(i.Name)
	stale.Credentials = revoked
	jetstreamtest.Await(t, "the old ones are refused", func() bool { return attempt(stale) != nil })
	if c.Connects() != 2 || !c.Connected() {
		t.Errorf("the end of the old credentials has cost a connection: %d", c.Connects())
	}
	jetstreamtest.Must(t, c.Ready(jetstreamtest.Within(t, jetstreamtest.Patience)))
}

// TestCredentialsThatAreNotUsableChangeNothing: the connection of before stays, and the reason is
// said once. Good ones are used then.
func TestCredentialsThatAreNotUsableChangeNothing(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	logged := &lines{}
	c, i, path, copied := g.connectElsewhere(t, access.RoleClient, logged.logger())
	other, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	_, err = other.Issue(i, 0)
	jetstreamtest.Must(t, err)
	stranger, err := os.ReadFile(other.Credentials(i.Name))
	jetstreamtest.Must(t, err)
	another, err := os.ReadFile(g.dir.Credentials("registry"))
	jetstreamtest.Must(t, err)
	for n, text := range [][]byte{stranger, another, []byte("-----BEGIN NATS USER JWT-----\nhalf")} {
		jetstreamtest.Must(t, os.WriteFile(path, text, 0o600))
		jetstreamtest.Await(t, "it says so", func() bool { return logged.count("not usable") == n+1 })
		jetstreamtest.Must(t, c.Ready(jetstreamtest.Within(t, jetstreamtest.Patience)))
	}
	looks := g.log.count("authentication error")
	jetstreamtest.Must(t, os.WriteFile(path, stranger, 0o600))
	jetstreamtest.Await(t, "they are tried again", func() bool { return g.log.count("authentication error") > looks })
	_, err = g.dir.Rotate(i.Name, true)
	jetstreamtest.Must(t, err)
	copied()
	jetstreamtest.Await(t, "the good ones are used", func() bool { return c.Connects() == 2 && c.Connected() })
}

// TestNothingIsLostWhileCredentialsChange: facts are published and followed over many changes.
func TestNothingIsLostWhileCredentialsChange(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	c, i, _, copied := g.connectElsewhere(t, access.RoleAll, nil)
	var mu sync.Mutex
	var got []string
	background(t, func(ctx context.Context) error {
		return c.Ports().Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.AllFacts}, Start: broker.FromFirst}, func(m broker.Stored) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, string(m.Data))
			return nil
		}, nil)
	})
	var want []string
	for range 3 {
		before := c.Connects()
		_, err := g.dir.Rotate(i.Name, false) // revokes the old ones too
		jetstreamtest.Must(t, err)
		copied()
		for c.Connects() == before || !c.Connected() {
			n := strconv.Itoa(len(want))
			want = append(want, n)
			jetstreamtest.Retry(t, "publish", func(ctx context.Context) error {
				_, err := c.Ports().Log.Publish(ctx, broker.Message{Subject: events.FactSubject(events.JobSucceeded{}.Type(), "demo-1"), ID: n, Data: []byte(n)})
				return err
			})
		}
	}
	jetstreamtest.Await(t, "all have arrived, once and in their order", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(got, want)
	})
}

// TestARefusalThatRepeatsIsSaidOnce, until another message is refused.
func TestARefusalThatRepeatsIsSaidOnce(t *testing.T) {
	t.Parallel()
	g, log := newGuarded(t), &lines{}
	c, _, _, _ := g.connectElsewhere(t, access.RoleViewer, log.logger())
	for _, subject := range []string{events.HeartbeatSubject("node-a"), events.HeartbeatSubject("node-a"), events.HeartbeatSubject("node-a"), events.NoticeSubject("demo")} {
		jetstreamtest.Must(t, c.Ports().Signals.Send(subject, []byte("{}")))
	}
	jetstreamtest.Await(t, "the last refusal is logged", func() bool { return log.count("sig.notice.demo") > 0 })
	if n := log.count("sig.heartbeat.node-a"); n != 1 {
		t.Errorf("the first was logged %d times, want once", n)
	}
}
