package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/identity"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// TestTheBrokerEntersItsOwnConfiguration: its own connection makes the streams also where a
// configuration file admits only certain users, and these share them.
func TestTheBrokerEntersItsOwnConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ conf, user string }{
		"one user": {`authorization { user: ada, password: pw }`, "ada:pw"},
		"a token":  {`authorization { token: pw }`, "pw"},
		"users":    {`authorization { users = [ { user: ada, password: pw }, { user: bob, password: pw } ] }`, "ada:pw"},
		"an account": {`accounts { TRAIN { jetstream: enabled, users = [ { user: ada, password: pw } ] }
			SYS { users = [ { user: sys, password: pw } ] } }
			system_account: SYS`, "ada:pw"},
		"anybody": {`max_connections: 100`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conf := filepath.Join(t.TempDir(), "nats.conf")
			jetstreamtest.Must(t, os.WriteFile(conf, []byte(c.conf), 0o600))
			started, err := server.Start(server.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", ConfigFile: conf})
			jetstreamtest.Must(t, err)
			t.Cleanup(started.Shutdown)
			own, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{Server: started})
			jetstreamtest.Must(t, err)
			t.Cleanup(own.Close)
			jetstreamtest.Must(t, own.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
			url := started.ClientURL()
			if c.user != "" {
				url = strings.Replace(url, "://", "://"+c.user+"@", 1)
			}
			theirs, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{URL: url})
			jetstreamtest.Must(t, err)
			t.Cleanup(theirs.Close)
			jetstreamtest.Must(t, theirs.Verify(jetstreamtest.Within(t, jetstreamtest.Patience)))
			if !started.Holds(events.StreamFacts) {
				t.Error("the server does not find its stream of facts")
			}
		})
	}
}

// TestAnUnclearConfigurationIsRefused with what to do about it.
func TestAnUnclearConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	jetstreamtest.Must(t, os.WriteFile(conf, []byte(`accounts { A { jetstream: enabled, users = [ { user: a, password: pw } ] }, B { users = [ { user: b, password: pw } ] } }`), 0o600))
	own, err := server.Start(server.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", ConfigFile: conf})
	jetstreamtest.Must(t, err)
	t.Cleanup(own.Shutdown)
	_, err = jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{Server: own})
	if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "--creds") {
		t.Errorf("with two accounts: %v, want Invalid that names --creds", err)
	}
	c, err := jetstream.Connect(jetstreamtest.Within(t, jetstreamtest.Patience), jetstream.ConnectOptions{Server: own, URL: "nats://a:pw@localhost"})
	jetstreamtest.Must(t, err)
	t.Cleanup(c.Close)
	jetstreamtest.Must(t, c.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
	for _, o := range []server.Options{
		{StoreDir: t.TempDir(), Auth: t.TempDir(), Secret: "s"}, {StoreDir: t.TempDir(), ConfigFile: conf, Secret: "s"}, {StoreDir: t.TempDir(), Auth: t.TempDir(), ConfigFile: conf},
	} {
		s, err := server.Start(o)
		if err == nil {
			s.Shutdown()
		}
		jetstreamtest.WantCode(t, err, errcode.Invalid)
	}
}

// TestASecretIsAskedFor from connections through the port, and not from those inside the process. A
// connection that is refused ends at once, and says what is missing.
func TestASecretIsAskedFor(t *testing.T) {
	t.Parallel()
	own, err := server.Start(server.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Secret: "of-this-test"})
	jetstreamtest.Must(t, err)
	t.Cleanup(own.Shutdown)
	secret := strings.Replace(own.ClientURL(), "://", "://regroup:of-this-test@", 1)
	creds := filepath.Join(t.TempDir(), "ada.creds")
	jetstreamtest.Must(t, os.WriteFile(creds, stranger(t), 0o600))
	for name, c := range map[string]struct {
		o       jetstream.ConnectOptions
		refusal string // that it names what is missing
	}{
		"inside":            {jetstream.ConnectOptions{Server: own}, ""},
		"knows it":          {jetstream.ConnectOptions{URL: own.ClientURL(), Secret: "of-this-test"}, ""},
		"has it in its URL": {jetstream.ConnectOptions{URL: secret}, ""},
		"knows another":     {jetstream.ConnectOptions{URL: own.ClientURL(), Secret: "of-another"}, "REGROUP_SECRET is not what it was"},
		"knows nothing":     {jetstream.ConnectOptions{URL: own.ClientURL()}, "none are given: set REGROUP_SECRET"},
		"is another user":   {jetstream.ConnectOptions{URL: strings.Replace(own.ClientURL(), "://", "://ada:pw@", 1)}, "no such user"},
		"is of a directory": {jetstream.ConnectOptions{URL: own.ClientURL(), Credentials: creds}, "ada.creds is revoked"},
		"a server is away":  {jetstream.ConnectOptions{URL: "nats://127.0.0.1:1," + own.ClientURL()}, "none are given"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := jetstreamtest.Within(t, jetstreamtest.Patience)
			conn, err := jetstream.Connect(ctx, c.o)
			if c.refusal != "" {
				if !errors.Is(err, jetstream.ErrRefused) || errcode.Of(err) != errcode.Unavailable || !strings.Contains(err.Error(), c.refusal) || ctx.Err() != nil {
					t.Errorf("%v (%v), want a refusal before that, with %q", err, ctx.Err(), c.refusal)
				}
				return
			}
			jetstreamtest.Must(t, err)
			defer conn.Close()
			jetstreamtest.Must(t, conn.Ensure(jetstreamtest.Within(t, jetstreamtest.Patience), 1))
		})
	}
}

// stranger returns credentials of another cluster.
func stranger(t *testing.T) []byte {
	t.Helper()
	dir, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	jetstreamtest.Must(t, err)
	creds, err := os.ReadFile(dir.Credentials("all"))
	jetstreamtest.Must(t, err)
	return creds
}
