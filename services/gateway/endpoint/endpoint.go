// Package endpoint opens the address at which a gateway listens, and refuses one that other
// machines can reach unless it is protected.
package endpoint

import (
	"crypto/tls"
	"net"
	"net/netip"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
)

// minToken is the least length of a token that other machines may try to guess.
const minToken = 16

// Endpoint is where a gateway listens, and how it proves itself.
type Endpoint struct {
	Listen  string // host:port
	Token   string // what clients must present; empty = a random one
	TLSCert string // path of a PEM file; empty = no TLS
	TLSKey  string
}

// Open begins to listen. An address that other machines can reach needs TLS and a token: the error
// is Invalid and says which of them is missing.
func (e Endpoint) Open() (l net.Listener, secure bool, err error) {
	host, _, err := net.SplitHostPort(e.Listen)
	if err != nil {
		return nil, false, errcode.Errorf(errcode.Invalid, "--listen %q: write host:port, as 127.0.0.1:8080", e.Listen)
	}
	if (e.TLSCert == "") != (e.TLSKey == "") {
		return nil, false, errcode.Errorf(errcode.Invalid, "--tls-cert and --tls-key: give both, or neither")
	}
	if !Loopback(host) {
		switch {
		case e.TLSCert == "" && e.Token == "":
			return nil, false, errcode.Errorf(errcode.Invalid, "--listen %s can be reached from other machines: give --tls-cert and --tls-key and set REGROUP_GATEWAY_TOKEN, or listen on 127.0.0.1", e.Listen)
		case e.TLSCert == "":
			return nil, false, errcode.Errorf(errcode.Invalid, "--listen %s can be reached from other machines, and the token would travel in the clear: give --tls-cert and --tls-key, or listen on 127.0.0.1", e.Listen)
		case e.Token == "":
			return nil, false, errcode.Errorf(errcode.Invalid, "--listen %s can be reached from other machines: set REGROUP_GATEWAY_TOKEN (at least %d characters), or listen on 127.0.0.1", e.Listen, minToken)
		}
	}
	if e.Token != "" && len(e.Token) < minToken {
		return nil, false, errcode.Errorf(errcode.Invalid, "REGROUP_GATEWAY_TOKEN has %d characters, at least %d are needed", len(e.Token), minToken)
	}
	if e.TLSCert == "" {
		l, err = net.Listen("tcp", e.Listen)
		return l, false, listening(e.Listen, err)
	}
	cert, err := tls.LoadX509KeyPair(e.TLSCert, e.TLSKey)
	if err != nil {
		return nil, false, errcode.Errorf(errcode.Invalid, "--tls-cert: %w", err)
	}
	l, err = tls.Listen("tcp", e.Listen, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	return l, true, listening(e.Listen, err)
}

func listening(address string, err error) error {
	if err == nil {
		return nil
	}
	return errcode.Errorf(errcode.Conflict, "--listen %s: %w", address, err)
}

// Loopback reports whether only this machine can reach a host.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.IsLoopback()
}
