package gpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// suite runs operations of an engine on all ranks at once, and compares what comes out with
// what one process computes from all ranks' input.
type suite struct {
	*Engine
	ctx    context.Context
	stream *nccl.Stream // the caller's
	pinned *nccl.HostMemory
	memory [2]nccl.Buffer
}

const suiteBytes = 1 << 18

func newSuite(ctx context.Context, e *Engine) (*suite, error) {
	s := &suite{Engine: e, ctx: ctx}
	var err error
	if s.stream, err = e.Device().NewStream(ctx); err != nil {
		return nil, err
	}
	if s.pinned, err = e.Device().AllocHost(ctx, suiteBytes); err != nil {
		return nil, err
	}
	for i := range s.memory {
		if s.memory[i], err = e.Device().Alloc(ctx, suiteBytes); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *suite) close() error {
	d := s.Device()
	err := errors.Join(s.stream.Close(s.ctx), s.pinned.Free(s.ctx))
	for _, b := range s.memory {
		err = errors.Join(err, d.Free(s.ctx, b))
	}
	return err
}

// at is the offset of tensors: unaligned on purpose.
const at = 264

// with returns a buffer with these bytes, which are copied on the caller's stream.
func (s *suite) with(p []byte) (nccl.Buffer, error) {
	if err := s.stream.Wait(s.ctx); err != nil {
		return nccl.Buffer{}, err
	}
	b := s.memory[0].Slice(at, at+len(p))
	return b, s.stream.ToDevice(s.ctx, b, s.pinned.Bytes[:copy(s.pinned.Bytes, p)])
}

// read reads a buffer on the caller's stream, after a task.
func (s *suite) read(t *Task, b nccl.Buffer) ([]byte, error) {
	if err := t.Before(s.ctx, s.stream); err != nil {
		return nil, err
	}
	p := s.pinned.Bytes[:b.Bytes()]
	if err := s.stream.ToHost(s.ctx, p, b); err != nil {
		return nil, err
	}
	if err := s.stream.Wait(s.ctx); err != nil {
		return nil, err
	}
	return slices.Clone(p), t.Wait(s.ctx)
}

var suiteTypes = []kernel.Type{
	kernel.Float32, kernel.Float64, kernel.Float16, kernel.BFloat16, kernel.Int8, kernel.Int16, kernel.Int32, kernel.Int64, kernel.Uint8,
}

func decodeAs(t kernel.Type, b []byte) (numbers []float64) {
	e := binary.NativeEndian
	for ; len(b) > 0; b = b[t.Size():] {
		var v float64
		switch t {
		case kernel.Float32:
			v = float64(math.Float32frombits(e.Uint32(b)))
		case kernel.Float64:
			v = math.Float64frombits(e.Uint64(b))
		case kernel.Float16, kernel.BFloat16:
			var wide [4]byte
			kernel.Widen(t, wide[:], b[:2])
			v = float64(math.Float32frombits(e.Uint32(wide[:])))
		case kernel.Int8:
			v = float64(int8(b[0]))
		case kernel.Uint8:
			v = float64(b[0])
		case kernel.Int16:
			v = float64(int16(e.Uint16(b)))
		case kernel.Int32:
			v = float64(int32(e.Uint32(b)))
		case kernel.Int64:
			v = float64(int64(e.Uint64(b)))
		}
		numbers = append(numbers, v)
	}
	return numbers
}

// numbers is the input of a rank: small, so that sums and products are exact in every type.
func numbers(rank, n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = float64(1 + (rank+i+i/7)%3)
	}
	return all
}

// combine is the oracle.
func combine(op collective.Op, world, n int) []float64 {
	out := numbers(0, n)
	for rank := 1; rank < world; rank++ {
		for i, v := range numbers(rank, n) {
			switch op {
			case collective.Product:
				out[i] *= v
			case collective.Min:
				out[i] = min(out[i], v)
			case collective.Max:
				out[i] = max(out[i], v)
			default:
				out[i] += v
			}
		}
	}
	if op == collective.Average {
		for i := range out {
			out[i] /= float64(world)
		}
	}
	return out
}

// same compares elements: averages up to the rounding of their type.
func same(t kernel.Type, op collective.Op, got []byte, want []float64) error {
	units := map[kernel.Type]float64{kernel.Float16: 0x1p-9, kernel.BFloat16: 0x1p-6, kernel.Float32: 0x1p-21, kernel.Float64: 0x1p-50}
	all := decodeAs(t, got)
	if len(all) != len(want) {
		return fmt.Errorf("%d elements, not %d", len(all), len(want))
	}
	for i, v := range all {
		w := want[i]
		if op == collective.Average {
			if !t.Float() {
				w = math.Trunc(w)
			} else if math.Abs(v-w) <= w*units[t] {
				continue
			}
		}
		if v != w {
			return fmt.Errorf("element %d of %d is %v, not %v", i, len(want), v, w)
		}
	}
	return nil
}

// run runs all checks; brief leaves most types out.
func (s *suite) run(brief bool) error {
	types, ops := suiteTypes, []collective.Op{collective.Sum, collective.Average, collective.Product, collective.Min, collective.Max}
	if brief {
		types, ops = types[:1], ops[:2]
	}
	lengths := []int{0, 1, 37, 13_331}
	for _, t := range types {
		for _, op := range ops {
			for _, n := range lengths {
				if n > 1000 && op > collective.Average || n != 37 && t != kernel.Float32 && op > collective.Sum {
					continue
				}
				if err := s.reduces(t, op, n); err != nil {
					return fmt.Errorf("%v of %v, %d elements: %w", op, t, n, err)
				}
			}
		}
	}
	for _, n := range []int{0, 1, 37, 9001} {
		if err := s.moves(n); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return errors.Join(s.halves(), s.sameBits(), s.Synchronize(s.ctx))
}

// reduces checks an Allreduce, a Reduce to some root and a ReduceScatter.
func (s *suite) reduces(t kernel.Type, op collective.Op, n int) error {
	world, rank := s.at.world(), s.at.rank()
	b, err := s.with(nccltest.Encode(t, numbers(rank, n)))
	if err != nil {
		return err
	}
	got, err := s.read(s.Allreduce(s.ctx, s.stream, b, t, op), b)
	if err == nil {
		err = same(t, op, got, combine(op, world, n))
	}
	if err != nil {
		return fmt.Errorf("allreduce: %w", err)
	}
	root := (n + int(op)) % world
	if b, err = s.with(nccltest.Encode(t, numbers(rank, n))); err != nil {
		return err
	}
	got, err = s.read(s.Reduce(s.ctx, s.stream, b, t, op, root), b)
	if err == nil && rank == root {
		err = same(t, op, got, combine(op, world, n))
	}
	if err != nil {
		return fmt.Errorf("reduce to %d: %w", root, err)
	}
	block := (n + 2) / 3 // three ranks and more
	if b, err = s.with(nccltest.Encode(t, numbers(rank, block*world))); err != nil {
		return err
	}
	recv := s.memory[1].Slice(0, block*t.Size())
	got, err = s.read(s.ReduceScatter(s.ctx, s.stream, b, recv, t, op), recv)
	if err == nil {
		err = same(t, op, got, combine(op, world, block*world)[rank*block:(rank+1)*block])
	}
	if err != nil {
		return fmt.Errorf("reduce-scatter: %w", err)
	}
	return nil
}

// pattern is bytes that are unique to this pair of ranks.
func pattern(from, to, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(17*from + 5*to + i + i>>8)
	}
	return p
}

// moves checks all operations without a reduction.
func (s *suite) moves(n int) error {
	world, rank := s.at.world(), s.at.rank()
	for root := range world {
		b, err := s.with(pattern(rank, 0, n))
		if err != nil {
			return err
		}
		got, err := s.read(s.Broadcast(s.ctx, s.stream, b, root), b)
		if err != nil || !bytes.Equal(got, pattern(root, 0, n)) {
			return fmt.Errorf("broadcast from %d: wrong bytes, or: %w", root, err)
		}
	}
	for _, inPlace := range []bool{false, true} {
		recv := s.memory[1].Slice(0, n*world)
		if inPlace {
			recv = s.memory[0].Slice(at/2, at/2+n*world)
		}
		send, err := s.with(pattern(rank, 1, n))
		if err != nil {
			return err
		}
		if inPlace {
			own := recv.Slice(rank*n, (rank+1)*n)
			if err := s.stream.Copy(s.ctx, s.memory[1].Slice(0, n), send); err != nil {
				return err
			}
			if err := s.stream.Copy(s.ctx, own, s.memory[1].Slice(0, n)); err != nil {
				return err
			}
			send = own
		}
		var want []byte
		for r := range world {
			want = append(want, pattern(r, 1, n)...)
		}
		got, err := s.read(s.Allgather(s.ctx, s.stream, send, recv), recv)
		if err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("all-gather, in place %v: wrong bytes, or: %w", inPlace, err)
		}
	}
	return errors.Join(s.alltoall(n, false), s.alltoall(n, true), s.ring(n), s.pair(n))
}

func (s *suite) alltoall(n int, uneven bool) error {
	world, rank := s.at.world(), s.at.rank()
	size := func(from, to int) int {
		if uneven {
			return n * ((from + 2*to) % 3) / 2
		}
		return n
	}
	var send, want []byte
	var counts, from []int
	for r := range world {
		send = append(send, pattern(rank, r, size(rank, r))...)
		want = append(want, pattern(r, rank, size(r, rank))...)
		counts, from = append(counts, size(rank, r)), append(from, size(r, rank))
	}
	if !uneven {
		counts, from = nil, nil
	}
	b, err := s.with(send)
	if err != nil {
		return err
	}
	recv := s.memory[1].Slice(0, len(want))
	got, err := s.read(s.Alltoall(s.ctx, s.stream, b, recv, counts, from), recv)
	if err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("all-to-all, uneven %v: wrong bytes, or: %w", uneven, err)
	}
	return nil
}

// ring sends two messages from every rank to the next one.
func (s *suite) ring(n int) error {
	world, rank := s.at.world(), s.at.rank()
	next, prev := (rank+1)%world, (rank+world-1)%world
	b, err := s.with(append(pattern(rank, next, n), pattern(rank, 99, 2*n)...))
	if err != nil {
		return err
	}
	recv := s.memory[1].Slice(0, 3*n)
	got, err := s.read(s.Exchange(s.ctx, s.stream,
		Transfer{Peer: next, Buffer: b.Slice(0, n)}, Transfer{Peer: next, Buffer: b.Slice(n, 3*n)},
		Transfer{Peer: prev, Buffer: recv.Slice(0, n), Receives: true}, Transfer{Peer: prev, Buffer: recv.Slice(n, 3*n), Receives: true},
	), recv)
	if err != nil || !bytes.Equal(got, append(pattern(prev, rank, n), pattern(prev, 99, 2*n)...)) {
		return fmt.Errorf("exchange: wrong bytes, or: %w", err)
	}
	return nil
}

// pair sends from the first rank to the last and back.
func (s *suite) pair(n int) error {
	world, rank := s.at.world(), s.at.rank()
	if world == 1 || rank != 0 && rank != world-1 {
		return nil
	}
	peer := world - 1 - rank
	b, err := s.with(pattern(rank, peer, n))
	if err != nil {
		return err
	}
	recv := s.memory[1].Slice(0, n)
	var task *Task
	if rank == 0 {
		sent := s.Send(s.ctx, s.stream, b, peer)
		task = s.Recv(s.ctx, s.stream, recv, peer)
		err = sent.Wait(s.ctx)
	} else {
		task = s.Recv(s.ctx, s.stream, recv, peer)
		err = s.Send(s.ctx, s.stream, b, peer).Wait(s.ctx)
	}
	got, failed := s.read(task, recv)
	if err := errors.Join(err, failed); err != nil || !bytes.Equal(got, pattern(peer, rank, n)) {
		return fmt.Errorf("send and receive: wrong bytes, or: %w", err)
	}
	return nil
}

// halves checks reductions that are sent in fewer bits.
func (s *suite) halves() error {
	for _, wire := range []kernel.Type{kernel.Float16, kernel.BFloat16} {
		for _, op := range []collective.Op{collective.Sum, collective.Average} {
			const n = 5003
			b, err := s.with(nccltest.Encode(kernel.Float32, numbers(s.at.rank(), n)))
			if err != nil {
				return err
			}
			got, err := s.read(s.AllreduceAs(s.ctx, s.stream, wire, b, op), b)
			if err == nil { // rounded at most twice
				all := decodeAs(kernel.Float32, got)
				for i, want := range combine(op, s.at.world(), n) {
					if math.Abs(all[i]-want) > want*0x1p-7 {
						err = fmt.Errorf("element %d is %v, not %v", i, all[i], want)
						break
					}
				}
			}
			if err != nil {
				return fmt.Errorf("%v as %v: %w", op, wire, err)
			}
		}
	}
	return nil
}

// sameBits checks that a rounded sum has the same bits on all ranks.
func (s *suite) sameBits() error {
	const n = 10_007
	rng := rand.New(rand.NewPCG(uint64(s.at.rank()), 1))
	input, exact := make([]float64, n), make([]float64, n)
	for i := range input {
		input[i] = rng.NormFloat64()
	}
	for r := range s.at.world() {
		rng := rand.New(rand.NewPCG(uint64(r), 1))
		for i := range exact {
			exact[i] += rng.NormFloat64()
		}
	}
	for _, narrow := range []bool{false, true} {
		b, err := s.with(nccltest.Encode(kernel.Float32, input))
		if err != nil {
			return err
		}
		task := s.Allreduce
		if narrow {
			task = func(ctx context.Context, on *nccl.Stream, b nccl.Buffer, _ kernel.Type, op collective.Op) *Task {
				return s.AllreduceAs(ctx, on, kernel.BFloat16, b, op)
			}
		}
		got, err := s.read(task(s.ctx, s.stream, b, kernel.Float32, collective.Sum), b)
		if err != nil {
			return err
		}
		if err := s.Synchronize(s.ctx); err != nil {
			return err
		}
		sums := make([]int64, s.at.world())
		if err := collective.Allgather(s.ctx, s.comm, []int64{int64(crc32.ChecksumIEEE(got))}, sums); err != nil {
			return err
		}
		if len(slices.Compact(sums)) != 1 {
			return fmt.Errorf("the ranks have different bits, narrow %v", narrow)
		}
		for i, v := range decodeAs(kernel.Float32, got) {
			if !narrow && math.Abs(v-exact[i]) > 1e-5 {
				return fmt.Errorf("element %d is %v, not %v", i, v, exact[i])
			}
		}
	}
	return nil
}
