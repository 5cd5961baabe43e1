package statesync

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/tcp"
)

// filled returns memory that is really there, with content.
func filled(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>12) ^ byte(i) ^ seed
	}
	return b
}

// ratio reports how fast the second is as a part of the first; both worked on the same bytes, turn
// by turn.
func ratio(b *testing.B, bytes int, reference, measured time.Duration) {
	rate := func(d time.Duration) float64 { return float64(bytes) * float64(b.N) / d.Seconds() / 1e9 }
	b.ReportMetric(rate(reference), "reference-GB/s")
	b.ReportMetric(rate(measured), "GB/s")
	b.ReportMetric(rate(measured)/rate(reference), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkCommit compares a commit with a copy of the same bytes on as many threads: in one
// tensor, and in small ones.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{64 << 20, 256 << 20} {
		for _, threads := range []int{1, runtime.NumCPU()} {
			for _, tensors := range []int{1, 1000} {
				b.Run(fmt.Sprintf("%dMiB/threads=%d/tensors=%d", size>>20, threads, tensors), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
					r, memory, to := newTestReplica(), filled(size, 0), filled(size, 1)
					for i := range tensors {
						r.Tensors.Add(fmt.Sprint(i), "uint8", memory[i*(size/tensors):(i+1)*(size/tensors)])
					}
					for range 2 { // makes the buffers
						r.Commit(testMeta(1), 1, 1)
					}
					var reference, measured time.Duration
					for b.Loop() {
						began := time.Now()
						var wait sync.WaitGroup
						for i := range threads {
							lo, hi := i*size/threads, (i+1)*size/threads
							wait.Go(func() { copy(to[lo:hi], memory[lo:hi]) })
						}
						wait.Wait()
						reference += time.Since(began)
						began = time.Now()
						r.Commit(testMeta(1), 1, 1)
						measured += time.Since(began)
					}
					ratio(b, size, reference, measured)
				})
			}
		}
	}
}

// BenchmarkName is what a commit costs when it is needed by others: its hash, compared with reading
// the memory once.
func BenchmarkName(b *testing.B) {
	const size = 256 << 20
	s := newSnapshot(size)
	copy(s.data, filled(size, 0))
	to := filled(size, 1)
	var reference, measured time.Duration
	for b.Loop() {
		began := time.Now()
		copy(to, s.data)
		reference += time.Since(began)
		began = time.Now()
		s.reset()
		s.Digest()
		measured += time.Since(began)
	}
	ratio(b, size, reference, measured)
}

// BenchmarkSync compares bringing newcomers a state over TCP, hashes and tensors included, with
// Communicator.Send and Recv of as many bytes in chunks: from as many holders to one newcomer. The
// holders know the hash of their commit, as after a rejoin. With several newcomers the rate is that
// of all: here they share two cores, elsewhere each has a network of its own.
func BenchmarkSync(b *testing.B) {
	const size = 256 << 20
	for _, c := range []struct{ holders, newcomers int }{{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}} {
		b.Run(fmt.Sprintf("holders=%d/newcomers=%d", c.holders, c.newcomers), func(b *testing.B) {
			world := c.holders + c.newcomers
			replicas, endpoints := make([]*Replica, world), make([]*collective.Endpoint, world)
			for r := range world {
				l, err := tcp.Listen(tcp.Options{Host: "127.0.0.1"})
				if err != nil {
					b.Fatal(err)
				}
				endpoints[r] = collective.NewEndpoint(l)
				defer func() { _ = endpoints[r].Close() }()
				replicas[r] = newTestReplica()
				replicas[r].Tensors.Add("t", "uint8", filled(size, byte(min(r, c.holders))))
				replicas[r].Begin(testMeta(0), 0)
				copy(replicas[r].buffer().data, replicas[r].newest.data)
				replicas[r].digest()
			}
			to := filled(size, 3)
			var reference, measured time.Duration
			for b.Loop() {
				for r := range world {
					newest := replicas[r].newest
					if newest.tentative = r >= c.holders; newest.tentative {
						for i := range newest.data { // another state again
							newest.data[i] ^= 1
						}
						newest.reset()
						newest.tentative = true
						replicas[r].digest()
					}
				}
				generation++
				d, m := syncOnce(b, endpoints, replicas, c.holders, to)
				reference, measured = reference+d, measured+m
			}
			ratio(b, size, reference, measured/time.Duration(c.newcomers))
		})
	}
}

var generation uint64

// syncOnce runs a sync and its reference in one generation.
func syncOnce(b *testing.B, endpoints []*collective.Endpoint, replicas []*Replica, holders int, to []byte) (reference, measured time.Duration) {
	world := len(replicas)
	comms, errs := make([]*collective.Communicator, world), make([]error, world)
	all := func(f func(rank int) error) time.Duration {
		began := time.Now()
		var wait sync.WaitGroup
		for r := range world {
			wait.Go(func() { errs[r] = f(r) })
		}
		wait.Wait()
		for _, err := range errs {
			if err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began)
	}
	ctx := context.Background()
	all(func(r int) (err error) {
		comms[r], err = collective.New(ctx, collective.Options{
			Job: "j", Generation: generation, Rank: r, World: world, Endpoint: endpoints[r],
			Peers: func(_ context.Context, q int) (string, error) { return endpoints[q].Addr(), nil },
		})
		return err
	})
	measured = all(func(r int) error {
		_, err := replicas[r].Sync(ctx, comms[r], generation)
		return err
	})
	var wait sync.WaitGroup
	began := time.Now()
	for h := range holders {
		stripe := func(move func(p []byte) error, data []byte) {
			for i := h; i < chunkCount(len(data)); i += holders {
				if err := move(chunk(data, i)); err != nil {
					b.Error(err)
					return
				}
			}
		}
		wait.Go(func() {
			stripe(func(p []byte) error { return comms[h].Send(ctx, holders, p) }, replicas[h].newest.data)
		})
		wait.Go(func() { stripe(func(p []byte) error { return comms[holders].Recv(ctx, h, p) }, to) })
	}
	wait.Wait()
	reference = time.Since(began)
	all(func(r int) error { return comms[r].Close() })
	return reference, measured
}
