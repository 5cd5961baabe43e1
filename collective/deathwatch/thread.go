package deathwatch

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// onOwnThread runs f on a thread that exits with it. That is never the main thread, which would
// live on with the descriptor table that f leaves behind.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
}

// runThread is the body of the watching thread.
func runThread(socket int, started chan<- error) {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		started <- err
		return
	}
	if err := closeOthers(socket); err != nil {
		started <- err
		return
	}
	started <- nil
	t := thread{polls: []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}, ids: []uint64{0}}
	for t.poll() {
	}
}

// closeOthers closes this thread's copies of all descriptors except one and those that the
// runtime needs on every thread.
func closeOthers(keep int) error {
	const dir = "/proc/thread-self/fd/"
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range all {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			return fmt.Errorf("descriptor %q: %w", f.Name(), err)
		}
		target, err := os.Readlink(dir + f.Name())
		if err != nil || fd == keep || strings.HasPrefix(target, "anon_inode:[event") {
			continue
		}
		_ = unix.Close(fd)
	}
	return nil
}

// thread is the state of the watching thread. Index 0 is the socket to the process, the others
// are watched connections.
type thread struct {
	polls []unix.PollFd
	ids   []uint64
}

// poll waits for events and handles them. It returns false when the thread shall exit.
func (t *thread) poll() bool {
	if _, err := unix.Poll(t.polls, -1); err != nil {
		return err == unix.EINTR
	}
	for i := len(t.polls) - 1; i > 0; i-- {
		if t.polls[i].Revents != 0 {
			t.handleEnd(i)
		}
	}
	return t.polls[0].Revents == 0 || t.handleMessage()
}

// handleEnd reports how a connection ended.
func (t *thread) handleEnd(i int) {
	var b [1]byte
	n, err := unix.Read(int(t.polls[i].Fd), b[:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	op := opClosed
	if n == 0 && err == nil {
		op = opDied
	}
	id := t.ids[i]
	t.remove(i)
	_, _ = unix.Write(int(t.polls[0].Fd), message(op, id))
}

// handleMessage applies one message of the process. It returns false when the thread shall exit.
func (t *thread) handleMessage() bool {
	socket := int(t.polls[0].Fd)
	b, rights := make([]byte, messageLen), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := unix.Recvmsg(socket, b, rights, unix.MSG_CMSG_CLOEXEC)
	if err == unix.EINTR {
		return true
	}
	if err != nil || n != messageLen || b[0] == opQuit {
		return false
	}
	id := binary.LittleEndian.Uint64(b[1:])
	if b[0] == opStop {
		for i := 1; i < len(t.ids); i++ {
			if t.ids[i] == id {
				_, _ = unix.Write(int(t.polls[i].Fd), []byte{0})
				t.remove(i)
				break
			}
		}
		return true
	}
	for _, fd := range descriptors(rights[:m]) {
		t.polls = append(t.polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP})
		t.ids = append(t.ids, id)
	}
	return true
}

func descriptors(rights []byte) []int {
	all, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(all) != 1 {
		return nil
	}
	fds, _ := unix.ParseUnixRights(&all[0]) // none after an error
	return fds
}

func (t *thread) remove(i int) {
	_ = unix.Close(int(t.polls[i].Fd))
	end := len(t.ids) - 1
	t.polls[i], t.ids[i] = t.polls[end], t.ids[end]
	t.polls, t.ids = t.polls[:end], t.ids[:end]
}
