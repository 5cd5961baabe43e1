package endpoint

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
)

// TestOpen refuses what other machines could reach without protection, and names the fix.
func TestOpen(t *testing.T) {
	const token = "0123456789abcdef"
	for _, c := range []struct {
		e    Endpoint
		want string // part of the error; empty = it opens
	}{
		{Endpoint{Listen: "127.0.0.1:0"}, ""},
		{Endpoint{Listen: "localhost:0"}, ""},
		{Endpoint{Listen: "[::1]:0"}, ""},
		{Endpoint{Listen: "127.0.0.1:0", Token: token}, ""},
		{Endpoint{Listen: "127.0.0.1:0", Token: "short"}, "at least 16"},
		{Endpoint{Listen: ":0"}, "--tls-cert and --tls-key and set REGROUP_GATEWAY_TOKEN"},
		{Endpoint{Listen: "0.0.0.0:0", Token: token}, "--tls-cert"},
		{Endpoint{Listen: "[::]:0", TLSCert: "c", TLSKey: "k"}, "REGROUP_GATEWAY_TOKEN"},
		{Endpoint{Listen: "10.0.0.1:0", Token: token}, "in the clear"},
		{Endpoint{Listen: "127.0.0.1:0", TLSCert: "c"}, "give both"},
		{Endpoint{Listen: "127.0.0.1:0", TLSCert: "none", TLSKey: "none"}, "none"},
		{Endpoint{Listen: "8080"}, "host:port"},
		{Endpoint{Listen: "localhost.evil.example:0"}, "other machines"},
	} {
		l, secure, err := c.e.Open()
		if l != nil {
			l.Close()
		}
		switch {
		case c.want == "" && (err != nil || secure):
			t.Errorf("%+v: %v", c.e, err)
		case c.want != "" && (errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c.e, err, c.want)
		}
	}
	l, _, err := Endpoint{Listen: "127.0.0.1:0"}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, _, err := (Endpoint{Listen: l.Addr().String()}).Open(); errcode.Of(err) != errcode.Conflict {
		t.Errorf("an address in use: %v", err)
	}
}
