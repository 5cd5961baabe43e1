package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/internal/wait"
)

// A cluster can start with one server, for which nats-server has no setting: a new cluster elects
// no leader before it has two servers, and no election begins without a route. The first server
// therefore has a companion, a second server in this process. When the cluster is new, the
// companion is a member of it: the two elect a leader, and then the companion is removed for good,
// as an operator removes a broken server. When the cluster exists, the companion has no streams: it
// is the route, until the first election. TestClusterStartsWithOneServer fails if an update of
// nats-server breaks this.

const (
	// companionDir is the store of a companion that is a member, in that of its server. It exists
	// until the companion has been removed from the cluster.
	companionDir = "companion"
	// foundLimit limits the time until a new cluster consists of its first server.
	foundLimit = 30 * time.Second
	// leaderPoll is how often a server without a leader looks for one.
	leaderPoll = 100 * time.Millisecond
	// askLimit limits one request to the API of JetStream.
	askLimit = 2 * time.Second
	// metaGroup is the group of all servers, which assigns streams to them.
	metaGroup = "_meta_"
)

// neverAll is more servers than a cluster has. One that believes in so many cannot be elected, nor
// elect another, until a leader tells it how many there are.
const neverAll = 1 << 16

// waitToBeAdded makes a server that has not been in a cluster wait until the leader of one adds
// it. A new server would hold an election at once. Two that join at the same time could so elect
// one of themselves before they hear of the leader: it knows no streams, and those of the cluster
// are lost. The file is what nats-server writes when it starts a new cluster (encodePeerState in
// its raft.go): the number of servers, that of the known ones and their ids, and two bytes for
// domains.
func waitToBeAdded(o *server.Options) error {
	dir := filepath.Join(o.StoreDir, server.JetStreamStoreDir, cmp.Or(o.SystemAccount, server.DEFAULT_SYSTEM_ACCOUNT), "_js_", metaGroup)
	file := filepath.Join(dir, "peers.idx")
	if _, err := os.Stat(file); err == nil {
		return nil // it is in the cluster, or was told to wait already
	}
	size := binary.LittleEndian.AppendUint32(nil, neverAll)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = durable.WriteFile(file, append(size, make([]byte, 6)...))
	}
	if err != nil {
		return errcode.Errorf(errcode.Unavailable, "NATS cluster: %w", err)
	}
	return nil
}

// toItself returns the address at which a server in this process reaches the cluster's port.
func toItself(o *server.Options) (*url.URL, error) {
	if o.Cluster.Port <= 0 {
		return nil, errcode.Errorf(errcode.Invalid, "NATS cluster: the first server needs a fixed port, so that others can name it: give host:port")
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

// accompany founds a new cluster; in others it runs a companion until the first election.
func (s *Server) accompany(o *server.Options) error {
	dir := filepath.Join(o.StoreDir, companionDir)
	_, missing := os.Stat(dir)
	if group := meta(s.ns); group.Size > 1 && (group.PIndex == 0 || missing == nil) {
		if err := s.found(o, dir); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return errcode.Errorf(errcode.Unavailable, "NATS cluster: %w", err)
	}
	if s.leader() != "" {
		return nil
	}
	c, err := server.NewServer(s.companionOf(o))
	if err != nil {
		return errcode.Errorf(errcode.Internal, "NATS cluster: companion: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.stopCompanion = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		c.Start()
		_ = wait.Until(ctx, leaderPoll, func() (bool, error) { return s.leader() != "", nil })
		c.Shutdown()
		c.WaitForShutdown()
	}()
	return nil
}

// companionOf returns the options of a server's companion. Its only user is one of the system
// account. A server without a listener for clients would have no routes either.
func (s *Server) companionOf(o *server.Options) *server.Options {
	system := server.NewAccount(s.ns.SystemAccount().GetName())
	return &server.Options{
		ServerName: o.ServerName + "-companion", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		SystemAccount: system.GetName(), Accounts: []*server.Account{system},
		Users: []*server.User{{Username: "companion", Password: rand.Text(), Account: system}},
		Cluster: server.ClusterOpts{
			Name: o.Cluster.Name, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoAdvertise: true,
			Username: o.Cluster.Username, Password: o.Cluster.Password, TLSConfig: o.Cluster.TLSConfig, TLSTimeout: o.Cluster.TLSTimeout,
		},
		Routes: o.Routes[:1],
	}
}

// found makes a new cluster of this server alone: with a companion that has its store in dir.
func (s *Server) found(o *server.Options, dir string) error {
	opts := s.companionOf(o)
	opts.JetStream, opts.StoreDir, opts.JetStreamDomain = true, dir, o.JetStreamDomain
	opts.JetStreamMaxMemory, opts.JetStreamMaxStore = 1, 1 // no stream fits
	c, err := server.NewServer(opts)
	if err != nil {
		return errcode.Errorf(errcode.Internal, "NATS cluster: companion: %w", err)
	}
	c.Start()
	defer func() {
		c.Shutdown()
		c.WaitForShutdown()
	}()
	nc, err := nats.Connect("", nats.InProcessServer(c), nats.UserInfo(opts.Users[0].Username, opts.Users[0].Password))
	if err != nil {
		return errcode.Errorf(errcode.Internal, "NATS cluster: companion: %w", err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), foundLimit)
	defer cancel()
	reason := error(nil)
	err = wait.Until(ctx, leaderPoll, func() (bool, error) {
		switch s.leader() {
		case "": // the election is not over
		case c.Name(): // it would need another election after its own removal
			reason = ask(ctx, nc, server.JSApiLeaderStepDown, server.JSApiLeaderStepdownRequest{Placement: &server.Placement{Preferred: o.ServerName}})
		default:
			reason = ask(ctx, nc, server.JSApiRemoveServer, server.JSApiMetaServerRemoveRequest{Peer: meta(c).ID})
			return reason == nil, nil
		}
		return false, nil
	})
	if err != nil {
		return errcode.Errorf(errcode.Unavailable, "NATS cluster: the first server was not alone in it within %s: %w", foundLimit, cmp.Or(reason, err))
	}
	return nil
}

// ask sends a request to the API of JetStream and returns its refusal.
func ask(ctx context.Context, nc *nats.Conn, subject string, request any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return err
	}
	var answer server.ApiResponse
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Description)
	}
	return nil
}

func meta(s *server.Server) server.RaftzGroup {
	system := s.SystemAccount().GetName()
	groups := s.Raftz(&server.RaftzOptions{AccountFilter: system, GroupFilter: metaGroup})
	if groups == nil {
		return server.RaftzGroup{}
	}
	return (*groups)[system][metaGroup]
}

// leader returns the name of the server that assigns streams; empty while there is none.
func (s *Server) leader() string {
	info, err := s.ns.Jsz(nil)
	if err != nil || info.Meta == nil {
		return ""
	}
	return info.Meta.Leader
}

// Peers returns the names of the servers in the JetStream cluster as known to the one that assigns
// streams; nil on the others, and outside a cluster.
func (s *Server) Peers() []string {
	if !s.ns.JetStreamIsClustered() {
		return nil
	}
	return s.ns.JetStreamClusterPeers()
}
