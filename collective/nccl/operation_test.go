package nccl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// input is the input of a rank in these tests: small, so that sums and products are exact in every
// type.
func input(t DataType, rank, n int) []byte {
	numbers := make([]float64, n)
	for i := range numbers {
		numbers[i] = float64(1 + (rank+i)%3)
	}
	return encode(t, numbers)
}

// combined is the result of an operation on all ranks' input.
func combined(t DataType, op ReduceOp, world, n int) []byte {
	numbers := make([]float64, n)
	for i := range numbers {
		for rank := range world {
			v := float64(1 + (rank+i)%3)
			switch {
			case rank == 0:
				numbers[i] = v
			case op == Product:
				numbers[i] *= v
			case op == Max:
				numbers[i] = max(numbers[i], v)
			case op == Min:
				numbers[i] = min(numbers[i], v)
			default:
				numbers[i] += v
			}
		}
		if op == Average {
			numbers[i] /= float64(world)
		}
	}
	return encode(t, numbers)
}

func TestAllReduceInEveryTypeAndOperationAndWorld(t *testing.T) {
	l := library(t, 23007)
	for _, n := range []int{1, 2, 4} { // in 3, averages are not exact
		comms := world(t, l, n, nil)
		for _, dtype := range []DataType{Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, BFloat16} {
			for _, op := range []ReduceOp{Sum, Product, Max, Min, Average} {
				if op == Average && dtype < Float16 {
					continue // the fake rounds as C does
				}
				const count = 33
				send, recv := make([]Buffer, n), make([]Buffer, n)
				for i, c := range comms {
					send[i] = upload(t, c.dev, input(dtype, i, count))
					recv[i] = upload(t, c.dev, make([]byte, count*dtype.Bytes()))
				}
				all(t, n, func(i int) error {
					w, err := comms[i].Do(soon(t), nil, AllReduce(send[i], recv[i], dtype, op))
					if err != nil {
						return err
					}
					return w.Wait(soon(t))
				})
				for i := range n {
					if !slices.Equal(download(t, recv[i]), combined(dtype, op, n, count)) {
						t.Errorf("type %d operation %d rank %d of %d", dtype, op, i, n)
					}
				}
			}
		}
	}
}

func TestEveryOtherOperationMovesWhatItShould(t *testing.T) {
	for _, version := range []int{21403, 23007} { // the oldest and the newest
		t.Run(Version(version).String(), func(t *testing.T) { everyOther(t, version) })
	}
}

func everyOther(t *testing.T, version int) {
	const n, count = 3, 5000
	part := func(b []byte, i int) []byte { return b[i*count*4 : (i+1)*count*4] }
	l := library(t, version)
	comms := world(t, l, n, nil)
	inputs := make([][]byte, n)
	for i := range n {
		inputs[i] = floats(n*count, 1, float64(100000*i))
	}
	sums := make([]float64, n*count)
	for i := range sums {
		sums[i] = float64(3*i + 300000)
	}
	total := encode(Float32, sums)
	var gathered []byte
	for i := range n {
		gathered = append(gathered, part(inputs[i], 0)...)
	}
	tests := []struct {
		name       string
		send, recv int // in parts
		op         func(rank int, send, recv Buffer) Operation
		want       func(rank int) []byte // nil: anything
	}{
		{"Reduce", n, n, func(_ int, s, r Buffer) Operation { return Reduce(s, r, Float32, Sum, 1) }, func(rank int) []byte {
			if rank != 1 {
				return nil
			}
			return total
		}},
		{"Broadcast", n, n, func(_ int, s, r Buffer) Operation { return Broadcast(s, r, Float32, 2) }, func(int) []byte { return inputs[2] }},
		{"AllGather", 1, n, func(_ int, s, r Buffer) Operation { return AllGather(s, r, Float32) }, func(int) []byte { return gathered }},
		{"ReduceScatter", n, 1, func(_ int, s, r Buffer) Operation { return ReduceScatter(s, r, Float32, Sum) }, func(rank int) []byte { return part(total, rank) }},
	}
	for _, test := range tests {
		send, recv := make([]Buffer, n), make([]Buffer, n)
		for i, c := range comms {
			send[i] = upload(t, c.dev, inputs[i][:test.send*count*4])
			recv[i] = upload(t, c.dev, make([]byte, test.recv*count*4))
		}
		all(t, n, func(i int) error {
			w, err := comms[i].Do(soon(t), nil, test.op(i, send[i], recv[i]))
			if err != nil {
				return err
			}
			return w.Wait(soon(t))
		})
		for i := range n {
			if want := test.want(i); want != nil && !slices.Equal(download(t, recv[i]), want) {
				t.Errorf("%s: rank %d got something else", test.name, i)
			}
		}
	}
}

func TestAGroupExchangesInARing(t *testing.T) {
	const n, count = 4, 30000
	l := library(t, 22703)
	comms := world(t, l, n, nil)
	send, recv := make([]Buffer, n), make([]Buffer, n)
	for i, c := range comms {
		send[i] = upload(t, c.dev, floats(count, 1, float64(i)))
		recv[i] = upload(t, c.dev, make([]byte, 4*count))
	}
	fake.Calls()
	all(t, n, func(i int) error {
		w, err := comms[i].Do(soon(t), nil, Send(send[i], Float32, (i+1)%n), Recv(recv[i], Float32, (i+n-1)%n))
		if err != nil {
			return err
		}
		return w.Wait(soon(t))
	})
	if calls := fake.Calls(); len(calls) < 4*n || !slices.Contains(calls, "GroupEnd") {
		t.Errorf("calls were %v", calls)
	}
	for i := range n {
		if !slices.Equal(download(t, recv[i]), floats(count, 1, float64((i+n-1)%n))) {
			t.Errorf("rank %d did not get what its neighbour sent", i)
		}
	}
}

func TestWrongArgumentsAreRefusedBeforeAnyCall(t *testing.T) {
	l := library(t, 23007)
	comms := world(t, l, 2, nil)
	c := comms[0]
	here, there := upload(t, c.dev, make([]byte, 64)), upload(t, comms[1].dev, make([]byte, 64))
	fake.Calls()
	for name, op := range map[string]Operation{
		"sizes differ":        AllReduce(here, here.Slice(0, 32), Float32, Sum),
		"half an element":     AllReduce(here.Slice(0, 6), here.Slice(0, 6), Float32, Sum),
		"no such type":        AllReduce(here, here, DataType(77), Sum),
		"on another device":   AllReduce(there, there, Float32, Sum),
		"no such root":        Broadcast(here, here, Float32, 2),
		"gather too small":    AllGather(here, here, Float32),
		"scatter too large":   ReduceScatter(here, here, Float32, Sum),
		"no such peer":        Send(here, Float32, -1),
		"root without a recv": Reduce(here, Buffer{}, Float32, Sum, 0),
	} {
		if _, err := c.Do(soon(t), nil, op); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Do(soon(t), nil, Operation{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty operation: %v", err)
	}
	if _, err := c.Do(soon(t), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("nothing to do: %v", err)
	}
	if _, err := c.Do(soon(t), comms[1].stream, AllReduce(here, here, Float32, Sum)); !errors.Is(err, ErrInvalid) {
		t.Errorf("after a stream of another device: %v", err)
	}
	if calls := fake.Calls(); len(calls) > 0 {
		t.Errorf("NCCL was called: %v", calls)
	}
	sumsTo(t, comms)
}

func TestOnlyMemoryOfThisDeviceIsABuffer(t *testing.T) {
	l := library(t, 23007)
	d, other := device(t, l, 0), device(t, l, 1)
	mine, theirs := upload(t, d, make([]byte, 4096)), upload(t, other, make([]byte, 4096))
	host, err := d.AllocHost(soon(t), 4096)
	ok(t, err)
	defer func() { ok(t, host.Free(soon(t))) }()
	if b, err := d.Buffer(soon(t), mine.Pointer(), 4096); err != nil || b.Bytes() != 4096 {
		t.Errorf("memory of the device: %v", err)
	}
	for _, test := range []struct {
		pointer uintptr
		size    int
		says    string
	}{
		{theirs.Pointer(), 4096, "memory of device 1, not of 0"},
		{addressOf(host.Bytes), 4096, "not memory of a GPU"},
		{0x1000, 8, "not memory of a GPU"},
		{mine.Pointer(), 1 << 30, "not memory of a GPU"}, // its end belongs to another device
		{0, 8, "8 bytes at 0x0"},
	} {
		if _, err := d.Buffer(soon(t), test.pointer, test.size); !errors.Is(err, ErrInvalid) || !strings.Contains(fmt.Sprint(err), test.says) {
			t.Errorf("%d bytes at %#x: %v, want %q", test.size, test.pointer, err, test.says)
		}
	}
}
