package nccl

import (
	"context"
	"fmt"
	"unsafe"
)

// Buffer is memory of one GPU. The zero value is empty.
type Buffer struct {
	dev     *Device
	pointer uintptr
	bytes   int
}

// Pointer is the CUdeviceptr.
func (b Buffer) Pointer() uintptr { return b.pointer }

// Bytes is the size.
func (b Buffer) Bytes() int { return b.bytes }

// Slice is a part of the buffer. It panics like a slice expression.
func (b Buffer) Slice(from, to int) Buffer {
	if from < 0 || to < from || to > b.bytes {
		panic(fmt.Sprintf("nccl: bytes %d to %d of a buffer of %d", from, to, b.bytes))
	}
	return Buffer{b.dev, b.pointer + uintptr(from), to - from}
}

// Chunk is chunk i of the buffer, which is divided into chunks of size bytes: it is shorter at the
// end, and empty beyond it.
func (b Buffer) Chunk(i, size int) Buffer {
	return b.Slice(min(i*size, b.bytes), min((i+1)*size, b.bytes))
}

// IsOn checks that the buffer is memory of d; an empty one is on every device.
func (b Buffer) IsOn(d *Device) error { return b.holds(d, b.bytes) }

// holds checks that n bytes from the start of the buffer are memory of d.
func (b Buffer) holds(d *Device, n int) error {
	switch {
	case n > b.bytes:
		return invalid("%d bytes of a buffer of %d", n, b.bytes)
	case n > 0 && b.dev != d:
		return invalid("the buffer is on device %d, not on %d", b.dev.ordinal, d.ordinal)
	}
	return nil
}

// Buffer describes memory that was allocated elsewhere, such as a tensor's data_ptr() and size in
// bytes. It asks the driver whether both ends are memory of this device; the memory must stay
// allocated while the buffer is in use.
func (d *Device) Buffer(ctx context.Context, pointer uintptr, bytes int) (Buffer, error) {
	if bytes < 0 || bytes > 0 && pointer == 0 {
		return Buffer{}, invalid("%d bytes at %#x", bytes, pointer)
	}
	b := Buffer{d, pointer, bytes}
	if bytes == 0 {
		return b, nil
	}
	return b, d.do(ctx, "cuPointerGetAttribute", func() error {
		for _, p := range []uintptr{pointer, pointer + uintptr(bytes) - 1} {
			if err := d.owns(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *Device) owns(pointer uintptr) error {
	var kind, ordinal uint32
	if d.lib.cuda.PointerAttribute(&kind, attributeMemoryType, pointer) != cudaSuccess || kind != memoryTypeDevice {
		return invalid("%#x is not memory of a GPU: NCCL takes tensors on device %d only", pointer, d.ordinal)
	}
	if err := d.lib.driverError("cuPointerGetAttribute",
		d.lib.cuda.PointerAttribute(&ordinal, attributeDeviceOrdinal, pointer)); err != nil {
		return err
	}
	if int(ordinal) != d.ordinal {
		return invalid("%#x is memory of device %d, not of %d", pointer, ordinal, d.ordinal)
	}
	return nil
}

// Alloc allocates memory of the GPU. It may wait for the GPU.
func (d *Device) Alloc(ctx context.Context, bytes int) (Buffer, error) {
	if bytes <= 0 {
		return Buffer{}, invalid("%d bytes", bytes)
	}
	b := Buffer{dev: d, bytes: bytes}
	err := d.do(ctx, "cuMemAlloc", func() error {
		if err := d.lib.driverError("cuMemAlloc", d.lib.cuda.MemAlloc(&b.pointer, uintptr(bytes))); err != nil {
			return err
		}
		d.memory[b.pointer] = struct{}{}
		return nil
	})
	if err != nil {
		return Buffer{}, fmt.Errorf("device %d: %d bytes: %w", d.ordinal, bytes, err)
	}
	return b, nil
}

// Free frees memory from Alloc. It waits for the GPU: if a collective hangs, abort first.
func (d *Device) Free(ctx context.Context, b Buffer) error {
	return d.do(ctx, "cuMemFree", func() error {
		if _, ours := d.memory[b.pointer]; !ours {
			return invalid("%#x was not allocated here", b.pointer)
		}
		delete(d.memory, b.pointer)
		return d.lib.driverError("cuMemFree", d.lib.cuda.MemFree(b.pointer))
	})
}

// HostMemory is pinned memory of the host, which the GPU can copy from and to by itself.
type HostMemory struct {
	Bytes []byte
	dev   *Device
}

// AllocHost allocates pinned memory for all contexts of the process.
func (d *Device) AllocHost(ctx context.Context, bytes int) (*HostMemory, error) {
	if bytes <= 0 {
		return nil, invalid("%d bytes", bytes)
	}
	p := new(unsafe.Pointer)
	err := d.call(ctx, "cuMemHostAlloc", func(c *cudaCalls) int32 { return c.MemHostAlloc(p, uintptr(bytes), hostPortable) })
	if err != nil {
		return nil, fmt.Errorf("%d bytes of pinned memory: %w", bytes, err)
	}
	return &HostMemory{Bytes: unsafe.Slice((*byte)(*p), bytes), dev: d}, nil
}

// Free frees the memory. No copy may be running.
func (h *HostMemory) Free(ctx context.Context) error {
	p := unsafe.Pointer(unsafe.SliceData(h.Bytes))
	return h.dev.call(ctx, "cuMemFreeHost", func(c *cudaCalls) int32 { return c.MemFreeHost(p) })
}
