package shm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// create returns the descriptor of anonymous shared memory.
func create(name string, bytes int) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("shm: reserve %d bytes: %w", bytes, err)
	}
	return fd, nil
}

// attach maps shared memory.
func attach(fd, bytes, protection int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, bytes, protection, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: map %d bytes: %w", bytes, err)
	}
	return mem, nil
}

func detach(mem []byte) { _ = unix.Munmap(mem) }

// attachAll maps the whole of what a descriptor is of, for reading.
func attachAll(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: stat an arena: %w", err)
	}
	return attach(fd, int(st.Size), unix.PROT_READ)
}
