//go:build cgo

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/tcp"
)

// endpoint is the object behind a rg_endpoint.
type endpoint struct {
	*collective.Endpoint
	mu    sync.Mutex
	given map[unsafe.Pointer][]byte // by alloc
}

// decode decodes options. An unknown member is most likely a misspelling, and an error.
func decode(options string, into any) error {
	d := json.NewDecoder(strings.NewReader(options))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalidf("options: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalidf("options: something follows the object")
	}
	return nil
}

func newEndpoint(options string) (*endpoint, error) {
	o := struct {
		Host      string `json:"host"`
		Advertise string `json:"advertise"`
		PortMin   int    `json:"port_min"`
		PortMax   int    `json:"port_max"`
		Encrypt   bool   `json:"encrypt"`
	}{}
	if err := decode(options, &o); err != nil {
		return nil, err
	}
	t, err := listen(tcp.Options{Host: o.Host, Advertise: o.Advertise, PortMin: o.PortMin, PortMax: o.PortMax})
	if err != nil {
		return nil, err
	}
	made := collective.NewEndpoint
	if o.Encrypt {
		made = collective.NewEncryptedEndpoint
	}
	return &endpoint{Endpoint: made(t), given: map[unsafe.Pointer][]byte{}}, nil
}

func (e *endpoint) alloc(n int64) (unsafe.Pointer, error) {
	if n <= 0 {
		return nil, invalidf("%d bytes", n)
	}
	p, err := e.Alloc(int(n))
	if err != nil {
		return nil, err
	}
	at := unsafe.Pointer(unsafe.SliceData(p))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given[at] = p
	return at, nil
}

func (e *endpoint) free(at unsafe.Pointer) error {
	e.mu.Lock()
	p, mine := e.given[at]
	delete(e.given, at)
	e.mu.Unlock()
	if !mine {
		return invalidf("this memory is not from rg_alloc of this endpoint")
	}
	e.Free(p)
	return nil
}

// connectWithin limits rg_comm_new where the caller does not.
const connectWithin = time.Minute

func (e *endpoint) connect(options string) (*communicator, error) {
	o := struct {
		Job            string   `json:"job"`
		Generation     uint64   `json:"generation"`
		Token          string   `json:"token"`
		Rank           int      `json:"rank"`
		World          int      `json:"world"`
		Peers          []string `json:"peers"`
		LocalRank      int      `json:"local_rank"`
		LocalSize      int      `json:"local_size"`
		ConnectWithin  int64    `json:"connect_within_ms"`
		StallAfter     int64    `json:"stall_after_ms"`
		ChunkBytes     int      `json:"chunk_bytes"`
		Streams        int      `json:"streams"`
		InlineBytes    int      `json:"inline_bytes"`
		NoSharedMemory bool     `json:"no_shared_memory"`
	}{}
	if err := decode(options, &o); err != nil {
		return nil, err
	}
	if o.World > 1 && len(o.Peers) != o.World {
		return nil, invalidf("peers has %d addresses for %d ranks", len(o.Peers), o.World)
	}
	within := connectWithin
	if o.ConnectWithin > 0 {
		within = milliseconds(o.ConnectWithin)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, fmt.Errorf("not connected within %v: %w", within, errTimeout))
	defer cancel()
	c, err := collective.New(ctx, collective.Options{
		Job: o.Job, Generation: o.Generation, Token: o.Token, Rank: o.Rank, World: o.World, Endpoint: e.Endpoint,
		Peers:      func(_ context.Context, rank int) (string, error) { return o.Peers[rank], nil },
		StallAfter: milliseconds(o.StallAfter), ChunkBytes: o.ChunkBytes, Streams: o.Streams, InlineBytes: o.InlineBytes,
		LocalRank: o.LocalRank, LocalSize: o.LocalSize, NoSharedMemory: o.NoSharedMemory,
	})
	if err != nil {
		return nil, err
	}
	return newCommunicator(c, o.Job), nil
}

// milliseconds converts a duration of C; negative stays negative.
func milliseconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

// transport is TCP that records which sockets belong to this library, for forks of the host: a
// child must not keep them open.
type transport struct{ *tcp.Transport }

var _ collective.Transport = transport{}

func listen(o tcp.Options) (transport, error) {
	t, err := tcp.Listen(o)
	if err != nil {
		return transport{}, err
	}
	markOwned(t)
	return transport{t}, nil
}

// Dial connects to a peer.
func (t transport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return markConnOwned(t.Transport.Dial(ctx, addr))
}

// Accept returns the next connection.
func (t transport) Accept(ctx context.Context) (net.Conn, error) {
	return markConnOwned(t.Transport.Accept(ctx))
}

func markConnOwned(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	if s, is := conn.(syscall.Conn); is {
		markOwned(s)
	}
	return conn, nil
}

// markOwned records a socket by its inode number.
func markOwned(s syscall.Conn) {
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		var st syscall.Stat_t
		if syscall.Fstat(int(fd), &st) == nil {
			rememberSocket(st.Ino)
		}
	})
}
