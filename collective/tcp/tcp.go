// Package tcp carries a collective over TCP, IPv4 or IPv6.
//
// The connections are neither encrypted nor authenticated here: the handshake of
// package collective proves who is at the other end, but what follows can be read
// and altered on the way. Use it inside a network that you trust, or with
// collective.NewEncryptedEndpoint.
package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/collective/deathwatch"
)

// Options say where to listen.
type Options struct {
	// Host is the address or name to listen on. Empty means loopback, 127.0.0.1: listening on all
	// addresses must be a decision.
	Host string
	// Advertise is the host that peers dial; empty means Host. Needed when Host is a wildcard
	// ("0.0.0.0", "::") or behind address translation.
	Advertise string
	// PortMin and PortMax bound the port, inclusive; the first free one is taken.
	// Both zero: the system chooses. PortMax zero: PortMin alone.
	PortMin, PortMax int
	// BytesPerSecond paces each connection, in each direction, to leave room on a link for
	// others. Zero means no limit.
	BytesPerSecond int
}

// silentAfter is how long a peer's machine may leave data or keepalive probes unacknowledged before
// the connection breaks. Less, and a busy link loses its peers; more, and a dead machine (not a
// dead process, which is noticed at once) is noticed late.
const silentAfter = 10 * time.Second

// Transport is one listening socket, and dials others.
type Transport struct {
	listener *net.TCPListener
	addr     string
	dialer   net.Dialer
	pace     int
}

// Listen opens the socket. The error names the hosts and ports that were tried.
func Listen(o Options) (*Transport, error) {
	if o.BytesPerSecond < 0 {
		return nil, fmt.Errorf("tcp: BytesPerSecond %d is negative", o.BytesPerSecond)
	}
	o.PortMax = cmp.Or(o.PortMax, o.PortMin)
	if o.PortMin < 0 || o.PortMax > 65535 || o.PortMin > o.PortMax || (o.PortMin == 0 && o.PortMax != 0) {
		return nil, fmt.Errorf("tcp: ports %d to %d are not a range within 1 to 65535", o.PortMin, o.PortMax)
	}
	host := cmp.Or(o.Host, "127.0.0.1")
	advertise := cmp.Or(o.Advertise, host)
	if ip := net.ParseIP(advertise); ip != nil && ip.IsUnspecified() {
		return nil, fmt.Errorf("tcp: nobody can dial %s: set Advertise to an address of this machine", advertise)
	}
	for port := o.PortMin; ; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			tl := l.(*net.TCPListener)
			bound := tl.Addr().(*net.TCPAddr).Port
			return &Transport{
				listener: tl,
				addr:     net.JoinHostPort(advertise, strconv.Itoa(bound)),
				pace:     o.BytesPerSecond,
			}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || port == o.PortMax {
			return nil, fmt.Errorf("tcp: listen on %s, ports %d to %d: %w", host, o.PortMin, o.PortMax, err)
		}
	}
}

// Addr is what peers pass to Dial: host and port.
func (t *Transport) Addr() string { return t.addr }

// Dial connects to a peer's Addr.
func (t *Transport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := t.dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return t.tune(conn.(*net.TCPConn))
}

// Accept waits for the next connection, until ctx ends or the transport is closed.
func (t *Transport) Accept(ctx context.Context) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = t.listener.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			_ = t.listener.SetDeadline(time.Time{})
		}
	}()
	conn, err := t.listener.AcceptTCP()
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return t.tune(conn)
}

// WatchPeer takes over a connection on which nothing is ever sent. It calls died as soon as the
// process at the other end, which watches the connection too, dies. See package deathwatch.
func (t *Transport) WatchPeer(conn net.Conn, died func()) (stop func(), err error) {
	return deathwatch.Watch(conn, died)
}

// SyscallConn gives access to the listening socket.
func (t *Transport) SyscallConn() (syscall.RawConn, error) { return t.listener.SyscallConn() }

// Close stops listening. Connections live on; their owners close them.
func (t *Transport) Close() error { return t.listener.Close() }

func (t *Transport) tune(conn *net.TCPConn) (net.Conn, error) {
	const quarter = silentAfter / 4 // three probes after a first silent time add up to the limit
	err := errors.Join(
		conn.SetNoDelay(true), // a step's last bytes must not wait for an acknowledgement
		conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: quarter, Interval: quarter, Count: 3}),
		tuneSocket(conn, t.pace),
	)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tcp: set up the connection to %s: %w", conn.RemoteAddr(), err)
	}
	return conn, nil
}
