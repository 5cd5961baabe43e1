package jetstream

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/regroup-io/regroup/events"
)

// A cluster can start with one server, which nats-server does not support: it elects no leader
// before two servers have met. Two measures, both only until the first election, make it possible.
// The server finds a peer set on its disk that contains only itself, as it would have written it;
// and it meets a companion, a server without streams in this process, because the election does not
// begin without a route. TestClusterStartsWithOneServer fails if an update of nats-server breaks
// this.

// peersFile returns the file in which nats-server keeps the peer set of the group that assigns
// streams.
func peersFile(o *server.Options) string {
	system := cmp.Or(o.SystemAccount, server.DEFAULT_SYSTEM_ACCOUNT)
	return filepath.Join(o.StoreDir, server.JetStreamStoreDir, system, "_js_", "_meta_", "peers.idx")
}

// aloneAtFirst writes the peer set of a cluster of one, unless there is a peer set already.
func aloneAtFirst(o *server.Options) error {
	file := peersFile(o)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	const idSize = 8
	set := make([]byte, 4+4+idSize+2)           // size, known, the ids, and an empty domain
	binary.LittleEndian.PutUint32(set[0:], 1)   // number of expected servers
	binary.LittleEndian.PutUint32(set[4:], 1)   // number of the following ids
	copy(set[8:], peerID(o.ServerName, idSize)) //nolint:mnd // behind the two numbers
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return events.Errorf(events.Unavailable, "NATS cluster: %w", err)
	}
	if err := os.WriteFile(file, set, 0o640); err != nil {
		return events.Errorf(events.Unavailable, "NATS cluster: %w", err)
	}
	return nil
}

// peerID returns the name that nats-server derives for a server in a peer set.
func peerID(name string, size int) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(name))
	id := make([]byte, size)
	for i := range id {
		id[i] = digits[int(sum[i])%len(digits)]
	}
	return string(id)
}

// toItself returns the address at which a server in this process reaches the cluster's port.
func toItself(o *server.Options) (*url.URL, error) {
	if o.Cluster.Port <= 0 {
		return nil, events.Errorf(events.Invalid, "NATS cluster: the first server needs a fixed port, so that others can name it: give host:port")
	}
	host := o.Cluster.Host
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	u := &url.URL{Scheme: "nats-route", Host: net.JoinHostPort(host, strconv.Itoa(o.Cluster.Port))}
	if o.Cluster.Username != "" {
		u.User = url.UserPassword(o.Cluster.Username, o.Cluster.Password)
	}
	return u, nil
}

// accompany runs a companion until the first election is over.
func (s *Server) accompany(o *server.Options, route *url.URL) error {
	c, err := server.NewServer(&server.Options{
		ServerName: o.ServerName + "-companion", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		Username: "nobody", Password: rand.Text(), // it takes no clients
		Cluster: server.ClusterOpts{
			Name: o.Cluster.Name, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoAdvertise: true,
			Username: o.Cluster.Username, Password: o.Cluster.Password,
		},
		Routes: []*url.URL{route},
	})
	if err != nil {
		return events.Errorf(events.Internal, "NATS cluster: companion: %w", err)
	}
	s.ending, s.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.ended)
		c.Start()
		tick := time.NewTicker(electionPause)
		defer tick.Stop()
		for !s.led() {
			select {
			case <-tick.C:
				continue
			case <-s.ending:
			}
			break
		}
		c.Shutdown()
		c.WaitForShutdown()
	}()
	return nil
}

// led reports whether the group that assigns streams has a leader.
func (s *Server) led() bool {
	info, err := s.ns.Jsz(nil)
	return err == nil && info.Meta != nil && info.Meta.Leader != ""
}

// Peers returns the names of the servers in the JetStream cluster as known to the one that assigns
// streams; nil on the others, and outside a cluster.
func (s *Server) Peers() []string {
	if !s.ns.JetStreamIsClustered() {
		return nil
	}
	return s.ns.JetStreamClusterPeers()
}
