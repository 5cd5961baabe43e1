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

// holds checks that n bytes from the buffer's beginning are memory of d.
func (b Buffer) holds(d *Device, n int) error {
	switch {
	case n > b.bytes:
		return invalid("%d bytes of a buffer of %d", n, b.bytes)
	case n > 0 && b.dev != d:
		return invalid("the buffer is on device %d, not on %d", b.dev.ordinal, d.ordinal)
	}
	return nil
}

// Buffer takes in memory that somebody else allocated, such as a tensor's data_ptr()
// and size in bytes. It asks the driver whether both ends are memory of this device;
// the memory must stay allocated while the buffer is in use.
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

// Alloc gets memory of the GPU. It may wait for the GPU.
func (d *Device) Alloc(ctx context.Context, bytes int) (Buffer, error) {
	c := &d.lib.cuda
	return d.alloc(ctx, "cuMemAlloc", bytes, func(b *Buffer) error {
		return d.lib.driverError("cuMemAlloc", c.MemAlloc(&b.pointer, uintptr(b.bytes)))
	}, func(b Buffer) error { return d.lib.driverError("cuMemFree", c.MemFree(b.pointer)) })
}

// AllocNCCL gets memory in the way that NCCL can register best. Since 2.19.1.
func (d *Device) AllocNCCL(ctx context.Context, bytes int) (Buffer, error) {
	n := &d.lib.nccl
	if n.MemAlloc == nil || n.MemFree == nil {
		return Buffer{}, unsupported("AllocNCCL", since("MemAlloc"), d.lib.version)
	}
	check := func(op string, code Code) error {
		if code != Success {
			return d.lib.failure(op, code, 0)
		}
		return nil
	}
	return d.alloc(ctx, "ncclMemAlloc", bytes, func(b *Buffer) error {
		return check("ncclMemAlloc", n.MemAlloc(&b.pointer, uintptr(b.bytes)))
	}, func(b Buffer) error { return check("ncclMemFree", n.MemFree(b.pointer)) })
}

func (d *Device) alloc(ctx context.Context, op string, bytes int, get func(*Buffer) error, put func(Buffer) error) (Buffer, error) {
	if bytes <= 0 {
		return Buffer{}, invalid("%d bytes", bytes)
	}
	b := Buffer{dev: d, bytes: bytes}
	err := d.do(ctx, op, func() error {
		if err := get(&b); err != nil {
			return err
		}
		d.memory[b.pointer] = func() error { return put(b) }
		return nil
	})
	if err != nil {
		return Buffer{}, fmt.Errorf("device %d: %d bytes: %w", d.ordinal, bytes, err)
	}
	return b, nil
}

// Free gives back what Alloc or AllocNCCL made. It waits for the GPU: with a
// collective that hangs, abort first.
func (d *Device) Free(ctx context.Context, b Buffer) error {
	return d.do(ctx, "cuMemFree", func() error {
		release := d.memory[b.pointer]
		if release == nil {
			return invalid("%#x was not allocated here", b.pointer)
		}
		delete(d.memory, b.pointer)
		return release()
	})
}

// HostMemory is pinned memory of the host: the GPU copies from and to it by itself.
type HostMemory struct {
	Bytes []byte
	dev   *Device
	ours  bool // allocated, not only pinned
}

// AllocHost gets pinned memory for all contexts of the process.
func (d *Device) AllocHost(ctx context.Context, bytes int) (*HostMemory, error) {
	if bytes <= 0 {
		return nil, invalid("%d bytes", bytes)
	}
	h := &HostMemory{dev: d, ours: true}
	err := d.do(ctx, "cuMemHostAlloc", func() error {
		var p unsafe.Pointer
		if err := d.lib.driverError("cuMemHostAlloc", d.lib.cuda.MemHostAlloc(&p, uintptr(bytes), hostPortable)); err != nil {
			return err
		}
		h.Bytes = unsafe.Slice((*byte)(p), bytes)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%d bytes of pinned memory: %w", bytes, err)
	}
	return h, nil
}

// PinHost pins pages that the process has, such as a shared mapping. They must not be
// of Go's heap, and stay mapped until Free.
func (d *Device) PinHost(ctx context.Context, pages []byte) (*HostMemory, error) {
	if len(pages) == 0 {
		return nil, invalid("no pages")
	}
	err := d.do(ctx, "cuMemHostRegister", func() error {
		code := d.lib.cuda.MemHostRegister(unsafe.Pointer(unsafe.SliceData(pages)), uintptr(len(pages)), hostPortable)
		return d.lib.driverError("cuMemHostRegister", code)
	})
	if err != nil {
		return nil, fmt.Errorf("pin %d bytes: %w", len(pages), err)
	}
	return &HostMemory{Bytes: pages, dev: d}, nil
}

// Free unpins the memory and, if AllocHost made it, gives it back. No copy may be under way.
func (h *HostMemory) Free(ctx context.Context) error {
	c := &h.dev.lib.cuda
	p := unsafe.Pointer(unsafe.SliceData(h.Bytes))
	return h.dev.do(ctx, "cuMemFreeHost", func() error {
		if h.ours {
			return h.dev.lib.driverError("cuMemFreeHost", c.MemFreeHost(p))
		}
		return h.dev.lib.driverError("cuMemHostUnregister", c.MemHostUnregister(p))
	})
}
