package jetstream_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/jetstream/server"
)

// authority signs certificates into a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign writes NAME.pem and NAME.key; the first certificate is self-signed.
func (a *authority) sign(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// TestClientsShowTheirCertificate to a server that asks for one, and verify it with the given
// authority.
func TestClientsShowTheirCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.sign("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.sign("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	conf := a.path("nats.conf")
	text := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n", a.path("server.pem"), a.path("server.key"), a.path("ca.pem"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := server.Start(server.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", ConfigFile: conf})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	for name, c := range map[string]struct {
		ca, cert, key string
		code          errcode.Code
	}{
		"both":              {"ca.pem", "client.pem", "client.key", ""},
		"no certificate":    {"ca.pem", "", "", errcode.Unavailable},
		"another authority": {"", "client.pem", "client.key", errcode.Unavailable},
		"no such file":      {"ca.pem", "no.pem", "no.key", errcode.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			o := jetstream.ConnectOptions{URL: server.ClientURL(), Name: "test"}
			for file, field := range map[string]*string{c.ca: &o.RootCA, c.cert: &o.ClientCert, c.key: &o.ClientKey} {
				if file != "" {
					*field = a.path(file)
				}
			}
			limit := jetstreamtest.Patience
			if c.code == errcode.Unavailable {
				limit = time.Second // it retries until then
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			conn, err := jetstream.Connect(ctx, o)
			if err == nil {
				conn.Close()
			}
			if (err == nil) != (c.code == "") || (err != nil && errcode.Of(err) != c.code) {
				t.Errorf("%v, want code %q", err, c.code)
			}
		})
	}
}
