package agent

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"syscall"

	"github.com/regroup-io/regroup/agent/tcpstore"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/spec"
)

// prepareMaster finds a port of this node for MASTER_ADDR and MASTER_PORT, and serves a store there
// unless the worker with rank 0 is to listen itself.
func (a *Agent) prepareMaster(ctx context.Context, p worker.PrepareMaster) worker.MasterPrepared {
	out := worker.MasterPrepared{Job: p.Job}
	l := a.listenFree(ctx)
	if l == nil {
		return out
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	out.Address = net.JoinHostPort(a.opt.Advertise, port)
	if p.Store == spec.StoreRank0 {
		_ = l.Close() // it is free at this time; the rank that gets it listens at once
		return out
	}
	a.stores[out.Address] = tcpstore.Options{Log: a.opt.Logger.With("node", a.opt.Node, "job", p.Job)}.Serve(l)
	return out
}

// releaseMaster ends the store of an address, if one is served there.
func (a *Agent) releaseMaster(address string) {
	if s := a.stores[address]; s != nil {
		delete(a.stores, address)
		_ = s.Close()
	}
}

// releaseMasters ends all stores.
func (a *Agent) releaseMasters() {
	for address := range a.stores {
		a.releaseMaster(address)
	}
}

// listenFree listens on a free data port of the advertised host, or of all addresses if that is
// none of this machine's own, such as the one of a container's host. It returns nil if no port is
// free.
func (a *Agent) listenFree(ctx context.Context) net.Listener {
	low, high, _ := portRange(a.opt.DataPorts)
	try := func(port int) net.Listener {
		for _, on := range []string{a.opt.Advertise, ""} {
			l, err := a.opt.ListenTCP(ctx, net.JoinHostPort(on, strconv.Itoa(port)))
			if err == nil {
				return l
			}
			if errors.Is(err, syscall.EADDRINUSE) {
				return nil
			}
		}
		return nil
	}
	if low == 0 {
		return try(0)
	}
	// Do not always choose the lowest: processes of the last generation may still use it.
	span := high - low + 1
	first := mathrand.IntN(span)
	for i := range span {
		if l := try(low + (first+i)%span); l != nil {
			return l
		}
	}
	return nil
}
