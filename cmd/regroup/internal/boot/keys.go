package boot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrPressed is the cause of a context that a key has cancelled.
var ErrPressed = errors.New("a key was pressed")

// UntilKey returns a context that the first of these keys at a terminal cancels, or an interrupt as
// in Interruptible. Keys are neither shown nor kept until the line ends, unless in is no terminal
// or another process reads it. restore ends that.
func UntilKey(parent context.Context, in *os.File, keys string) (ctx context.Context, restore func()) {
	ctx, off := Interruptible(parent, nil)
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil || background(fd) {
		return ctx, off
	}
	var wake [2]int
	if err := unix.Pipe2(wake[:], unix.O_CLOEXEC); err != nil {
		return ctx, off
	}
	single := *before
	single.Lflag &^= unix.ICANON | unix.ECHO
	single.Cc[unix.VMIN], single.Cc[unix.VTIME] = 1, 0
	apply := func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, &single) } // else keys need a new line
	apply()
	again := listen(func() { // a shell sets its own modes while this process is stopped
		if !background(fd) {
			apply()
		}
	}, unix.SIGCONT)
	ctx, cancel := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		if readsKey(fd, wake[0], keys) {
			cancel(ErrPressed)
		}
	})
	return ctx, func() {
		again()
		_ = unix.Close(wake[1]) // the reader ends
		reading.Wait()
		_ = unix.Close(wake[0])
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, before) // the terminal may be gone
		cancel(nil)
		off()
	}
}

// background reports whether a terminal is that of this process, and another one reads it: to
// change its modes would stop this one.
func background(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// readsKey reads a terminal until one of the keys comes; false if the other end of wake was closed
// before, or the terminal is gone.
func readsKey(fd, wake int, keys string) bool {
	from := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake)}}
	var b [64]byte
	for {
		if _, err := unix.Poll(from, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		} else if err != nil {
			continue
		}
		if from[1].Revents != 0 {
			return false
		}
		n, err := unix.Read(fd, b[:])
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil || n == 0 {
			return false
		}
		if bytes.ContainsAny(b[:n], keys) {
			return true
		}
	}
}
