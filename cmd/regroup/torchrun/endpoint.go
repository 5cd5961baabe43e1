package torchrun

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/cmd/regroup/internal/jobflags"
	"github.com/regroup-io/regroup/events/errcode"
)

// place is where the job's server is.
type place struct {
	own  bool   // in this process, for this node alone
	host string // host:port at which this process serves all nodes; empty = another one does
	url  string // of the server that others run
}

// Default ports of torchrun: of the static backend, and of c10d.
const staticPort, c10dPort = "29500", "29400"

// place decides as torchrun does where its store is: a server that is configured wins; a single
// node has its own; of several nodes that with the address of the endpoint serves the others.
func (o *options) place(ctx context.Context, configured string) (place, error) {
	switch {
	case o.on("standalone"):
		return place{own: true}, nil
	case configured != "":
		return place{url: configured}, nil
	case o.single():
		return place{own: true}, nil
	}
	backend := o.text("rdzv-backend")
	endpoint := o.text("rdzv-endpoint")
	if backend == "static" {
		if endpoint == "" {
			endpoint = net.JoinHostPort(strings.Trim(o.text("master-addr"), "[]"), o.text("master-port"))
		}
		endpoint, err := address(endpoint, staticPort)
		if err != nil {
			return place{}, err
		}
		rank, err := strconv.Atoi(o.text("node-rank"))
		if err != nil || rank < 0 {
			return place{}, errcode.Errorf(errcode.Invalid, "--node-rank is %q: write a number of at least 0", o.text("node-rank"))
		}
		if rank == 0 {
			return place{host: endpoint}, nil
		}
		return place{url: "nats://" + endpoint}, nil
	}
	if endpoint == "" {
		return place{}, errcode.Errorf(errcode.Invalid, "--rdzv-endpoint is missing: give the HOST:PORT of one of the nodes, the same on all of them, or a server that runs already (--server)")
	}
	endpoint, err := address(endpoint, c10dPort)
	if err != nil {
		return place{}, err
	}
	here, given := o.isHost()
	if !given {
		here = local(ctx, endpoint)
	}
	if here {
		return place{host: endpoint}, nil
	}
	return place{url: "nats://" + endpoint}, nil
}

// isHost reads is_host of --rdzv-conf.
func (o *options) isHost() (host, given bool) {
	_, value, _ := jobflags.SplitConf(o.text("rdzv-conf"))
	return slices.Contains([]string{"1", "true", "t", "yes", "y"}, value), value != ""
}

// address completes an endpoint by the default port.
func address(endpoint, port string) (string, error) {
	host, p, err := net.SplitHostPort(endpoint)
	if err != nil { // as torchrun: without a port
		host, p = strings.Trim(endpoint, "[]"), port
	}
	p = cmp.Or(p, port)
	if n, err := strconv.Atoi(p); host == "" || err != nil || n < 1 || n > 65535 {
		return "", errcode.Errorf(errcode.Invalid, "%q is no endpoint: write HOST:PORT", endpoint)
	}
	return net.JoinHostPort(host, p), nil
}

// local reports whether an endpoint is an address of this machine.
func local(ctx context.Context, endpoint string) bool {
	host, _, _ := net.SplitHostPort(endpoint)
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, f := range found {
		if f.IP.IsLoopback() {
			return true
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(f.IP) {
				return true
			}
		}
	}
	return false
}
