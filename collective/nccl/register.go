package nccl

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
)

// ask runs a call on a working communicator that NCCL answers at once or fails. The turn is taken, because
// NCCL allows nothing else while a launch is in progress.
func (c *Comm) ask(ctx context.Context, op string, call func(native uintptr) Code) error {
	ctx, done := c.scope(ctx, op)
	defer done()
	if err := c.lock(ctx); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer c.unlock()
	var code Code
	err := c.dev.do(ctx, op, func() error {
		native := c.native.Load()
		if native == 0 {
			return c.gone()
		}
		if code = call(native); !code.working() {
			return c.dev.lib.failure(op, code, native)
		}
		return nil
	})
	if stuck(err) {
		c.fail(err)
	}
	if err == nil && code == InProgress {
		err = c.settle(ctx, op, nil)
	}
	return err
}

// Registration is a buffer that NCCL has registered, so that it need not copy.
type Registration struct {
	comm   *Comm
	handle *uintptr
	window bool
}

// Register tells NCCL of a buffer that operations will use, as long as the communicator
// or the buffer lives. AllocNCCL makes buffers for which that helps most. Since 2.19.1.
func (c *Comm) Register(ctx context.Context, b Buffer) (*Registration, error) {
	n := &c.dev.lib.nccl
	if n.CommRegister == nil || n.CommDeregister == nil {
		return nil, unsupported("Register", since("CommRegister"), c.dev.lib.version)
	}
	if err := b.holds(c.dev, b.bytes); err != nil {
		return nil, err
	}
	r := &Registration{comm: c, handle: new(uintptr)}
	return r, c.ask(ctx, "ncclCommRegister", func(native uintptr) Code {
		return n.CommRegister(native, b.pointer, uintptr(b.bytes), r.handle)
	})
}

// RegisterWindow registers a buffer of AllocNCCL on all ranks, which all must call it,
// for the kernels that reach into each other's memory. Since 2.27.3.
func (c *Comm) RegisterWindow(ctx context.Context, b Buffer) (*Registration, error) {
	n := &c.dev.lib.nccl
	if n.WindowRegister == nil || n.WindowDeregister == nil {
		return nil, unsupported("RegisterWindow", since("WindowRegister"), c.dev.lib.version)
	}
	if err := b.holds(c.dev, b.bytes); err != nil {
		return nil, err
	}
	r := &Registration{comm: c, handle: new(uintptr), window: true}
	return r, c.ask(ctx, "ncclCommWindowRegister", func(native uintptr) Code {
		return n.WindowRegister(native, b.pointer, uintptr(b.bytes), r.handle, windowSymmetric)
	})
}

// Close ends the registration. No operation that uses the buffer may be under way.
func (r *Registration) Close(ctx context.Context) error {
	n := &r.comm.dev.lib.nccl
	if r.window {
		return r.comm.ask(ctx, "ncclCommWindowDeregister", func(native uintptr) Code {
			return n.WindowDeregister(native, *r.handle)
		})
	}
	return r.comm.ask(ctx, "ncclCommDeregister", func(native uintptr) Code { return n.CommDeregister(native, *r.handle) })
}

// MemoryBytes is the memory of the GPU that NCCL took for this communicator. Since 2.29.7.
func (c *Comm) MemoryBytes(ctx context.Context) (uint64, error) {
	n := &c.dev.lib.nccl
	if n.CommMemStats == nil {
		return 0, unsupported("MemoryBytes", since("CommMemStats"), c.dev.lib.version)
	}
	var total uint64
	err := c.ask(ctx, "ncclCommMemStats", func(native uintptr) Code { return n.CommMemStats(native, statTotal, &total) })
	if err != nil {
		return 0, err
	}
	return total, nil
}

// PreMulSum makes a reduction that multiplies each rank's elements by its own factor
// before it sums: weighted means in one pass. Only for this communicator and type, which
// must be a float of 16 to 64 bits.
func (c *Comm) PreMulSum(ctx context.Context, t DataType, factor float64) (ReduceOp, error) {
	n := &c.dev.lib.nccl
	if n.PreMulSumCreate == nil || n.RedOpDestroy == nil {
		return 0, unsupported("PreMulSum", since("PreMulSumCreate"), c.dev.lib.version)
	}
	scalar, ok := scalarOf(t, factor)
	if !ok {
		return 0, invalid("a factor for data type %d", t)
	}
	var op ReduceOp
	err := c.ask(ctx, "ncclRedOpCreatePreMulSum", func(native uintptr) Code {
		return n.PreMulSumCreate(&op, &scalar, t, scalarOnHost, native)
	})
	if err != nil {
		return 0, err
	}
	return op, nil
}

// DropOp frees what PreMulSum made, once all launches with it have returned.
func (c *Comm) DropOp(ctx context.Context, op ReduceOp) error {
	return c.ask(ctx, "ncclRedOpDestroy", func(native uintptr) Code { return c.dev.lib.nccl.RedOpDestroy(op, native) })
}

// scalarOf is factor as an element in memory.
func scalarOf(t DataType, factor float64) (s [8]byte, ok bool) {
	single := math.Float32bits(float32(factor))
	switch t {
	case Float64:
		binary.NativeEndian.PutUint64(s[:], math.Float64bits(factor))
	case Float32:
		binary.NativeEndian.PutUint32(s[:], single)
	case BFloat16: // round to even; NaN stays one
		if single&0x7fffffff <= 0x7f800000 {
			single += 0x7fff + single>>16&1
		}
		binary.NativeEndian.PutUint16(s[:], uint16(single>>16))
	case Float16:
		binary.NativeEndian.PutUint16(s[:], half(factor))
	default:
		return s, false
	}
	return s, true
}

// half is f as an IEEE 754 half, rounded to even.
func half(f float64) uint16 {
	sign := uint16(math.Float64bits(f) >> 48 & 0x8000)
	f = math.Abs(f)
	switch {
	case math.IsNaN(f):
		return sign | 0x7e00
	case f >= 65520: // beyond the middle between the largest half and the next
		return sign | 0x7c00
	case f < 0x1p-14: // subnormal: multiples of 2^-24
		return sign | uint16(math.RoundToEven(f*0x1p24))
	}
	fraction, exponent := math.Frexp(f)                                               // 0.5 to 1
	return sign + uint16(exponent+13)<<10 + uint16(math.RoundToEven(fraction*0x1p11)) // the leading one adds to the exponent
}
