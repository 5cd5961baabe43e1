// Package freeport chooses addresses for servers that tests start later.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports lie below those that systems give to connections and to listeners without a port
// (Linux: from 32768, IANA: from 49152). One of these could be given away again before its server
// listens, even to a client that dials it meanwhile: TCP then connects the client to itself.
const (
	lowest  = 10000
	highest = 32767
)

// Addresses returns n different loopback addresses on which nobody listens.
func Addresses(n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		l, err := listen()
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are held until all are chosen, so that they differ
		out[i] = l.Addr().String()
	}
	return out, nil
}

func listen() (l net.Listener, err error) {
	const attempts = 100
	for range attempts {
		port := lowest + rand.IntN(highest-lowest+1)
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			break
		}
	}
	return l, err
}
