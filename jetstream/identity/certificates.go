package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
)

// Names of the certificates and keys, in tlsDir.
const (
	tlsDir     = "tls"
	authority  = "ca"
	serverName = "server" // of the brokers, to clients and to each other
	clientName = "client"
)

// Lives of certificates.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 90 * 24 * time.Hour
	clockSkew     = time.Hour // by which the clocks of machines may differ
)

// CA returns the path of the certificate with which brokers are verified.
func (d Dir) CA() string { return d.Path(tlsDir, authority+".pem") }

// HasCertificates reports whether a broker can offer TLS.
func (d Dir) HasCertificates() bool {
	_, err := os.Stat(d.Path(tlsDir, serverName+".pem"))
	return err == nil
}

func (d Dir) initCertificates(hosts []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return failed(err)
	}
	ca := certificate("regroup", authorityLife)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return failed(err)
	}
	if err := d.writePair(authority, der, key); err != nil {
		return err
	}
	return d.Certify(hosts)
}

// Certify makes new certificates for brokers, valid for these names and addresses, and for clients.
// Running brokers use them for new connections. NotFound where the key of the authority is not
// kept.
func (d Dir) Certify(hosts []string) error {
	ca, err := tls.LoadX509KeyPair(d.CA(), d.Path(tlsDir, authority+".key"))
	if err != nil {
		return errcode.Errorf(errcode.NotFound, "identities: the authority of the certificates: %w", err)
	}
	server := certificate("regroup broker", leafLife)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, h)
		}
	}
	client := certificate("regroup client", leafLife)
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, c := range map[string]*x509.Certificate{serverName: server, clientName: client} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return failed(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca.Leaf, &key.PublicKey, ca.PrivateKey)
		if err != nil {
			return failed(err)
		}
		if err := d.writePair(name, der, key); err != nil {
			return err
		}
	}
	return nil
}

func certificate(name string, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // rand.Reader never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-clockSkew), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// writePair writes the key into NAME.key, and the certificate with its key into NAME.pem as well:
// a reader of that file alone never sees a certificate without its key.
func (d Dir) writePair(name string, der []byte, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return failed(err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := d.write(filepath.Join(tlsDir, name+".key"), private); err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if name == serverName {
		text = append(text, private...)
	}
	return d.write(filepath.Join(tlsDir, name+".pem"), text)
}

// ServerTLS returns the configuration of a broker that offers the directory's certificate to
// clients. A certificate that is replaced is used from the next connection on.
func (d Dir) ServerTLS() (*tls.Config, error) {
	pool, err := d.pool()
	if err != nil {
		return nil, err
	}
	s := &served{path: d.Path(tlsDir, serverName+".pem")}
	if _, err := s.certificate(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		// A message is read at once or not at all: short records would only be more of them.
		DynamicRecordSizingDisabled: true,
		GetCertificate:              func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate() },
	}, nil
}

// RouteTLS returns the configuration for the routes between brokers: both sides show a certificate
// of the authority.
func (d Dir) RouteTLS() (*tls.Config, error) {
	c, err := d.ServerTLS()
	if err != nil {
		return nil, err
	}
	roots := c.ClientCAs
	c.ClientAuth, c.RootCAs = tls.RequireAndVerifyClientCert, roots
	get := c.GetCertificate
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return get(nil) }
	// Brokers find each other under addresses that no certificate can list beforehand: any
	// certificate of the authority for brokers is good.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errcode.Errorf(errcode.Invalid, "the other broker shows no certificate")
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		return err
	}
	return c, nil
}

func (d Dir) pool() (*x509.CertPool, error) {
	text, err := os.ReadFile(d.CA())
	if err != nil {
		return nil, errcode.Errorf(errcode.NotFound, "identities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errcode.Errorf(errcode.Invalid, "%s has no certificate", d.CA())
	}
	return pool, nil
}

// served is a certificate file that may be replaced.
type served struct {
	path string
	mu   sync.Mutex
	text []byte
	cert *tls.Certificate
}

// certificate returns the certificate that the file has now, or had when it could be read last.
func (s *served) certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := os.ReadFile(s.path)
	if err == nil && bytes.Equal(text, s.text) {
		return s.cert, nil
	}
	if err == nil {
		var cert tls.Certificate
		if cert, err = tls.X509KeyPair(text, text); err == nil {
			s.text, s.cert = text, &cert
		}
	}
	if s.cert == nil {
		return nil, errcode.Errorf(errcode.Invalid, "the certificate of the broker: %w", err)
	}
	return s.cert, nil
}
