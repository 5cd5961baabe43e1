package run

import (
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// listenAs returns a socket at which another user listens, as far as its clients see.
func listenAs(path string, uid int) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this function: it is of the other user
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			made <- errno
			return
		}
		made <- unix.Listen(fd, 1) // the kernel notes who listens
	}()
	if err := <-made; err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }()
	return net.FileListener(f)
}
