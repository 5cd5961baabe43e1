package vigil

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread that ends with it, and is not the main one: that would live on
// with what f has made of it.
func onThread(f func()) {
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

// keep is the thread.
func keep(socket int, started chan<- error) {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		started <- err
		return
	}
	if err := letGo(socket); err != nil {
		started <- err
		return
	}
	started <- nil
	t := thread{polls: []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}, ids: []uint64{0}}
	for t.turn() {
	}
}

// letGo closes this thread's copies of all descriptors but one, and those that the runtime
// needs on every thread.
func letGo(but int) error {
	const mine = "/proc/thread-self/fd/"
	all, err := os.ReadDir(mine)
	if err != nil {
		return err
	}
	for _, f := range all {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			return fmt.Errorf("descriptor %q: %w", f.Name(), err)
		}
		what, err := os.Readlink(mine + f.Name())
		if err != nil || fd == but || strings.HasPrefix(what, "anon_inode:[event") {
			continue
		}
		_ = unix.Close(fd)
	}
	return nil
}

// thread holds connections: place 0 is the way to the process.
type thread struct {
	polls []unix.PollFd
	ids   []uint64
}

// turn waits for something to happen; false = that was all.
func (t *thread) turn() bool {
	if _, err := unix.Poll(t.polls, -1); err != nil {
		return err == unix.EINTR
	}
	for i := len(t.polls) - 1; i > 0; i-- {
		if t.polls[i].Revents != 0 {
			t.ended(i)
		}
	}
	return t.polls[0].Revents == 0 || t.told()
}

// ended finds out how a connection has ended.
func (t *thread) ended(i int) {
	var b [1]byte
	n, err := unix.Read(int(t.polls[i].Fd), b[:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	how := gone
	if n == 0 && err == nil {
		how = over
	}
	id := t.ids[i]
	t.forget(i)
	_, _ = unix.Write(int(t.polls[0].Fd), message(how, id))
}

// told takes in what the process says.
func (t *thread) told() bool {
	socket := int(t.polls[0].Fd)
	b, rights := make([]byte, messageLen), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := unix.Recvmsg(socket, b, rights, unix.MSG_CMSG_CLOEXEC)
	if err == unix.EINTR {
		return true
	}
	if err != nil || n != messageLen || b[0] == quit {
		return false
	}
	id := binary.LittleEndian.Uint64(b[1:])
	if b[0] == drop {
		for i := 1; i < len(t.ids); i++ {
			if t.ids[i] == id {
				_, _ = unix.Write(int(t.polls[i].Fd), []byte{0})
				t.forget(i)
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

func (t *thread) forget(i int) {
	_ = unix.Close(int(t.polls[i].Fd))
	end := len(t.ids) - 1
	t.polls[i], t.ids[i] = t.polls[end], t.ids[end]
	t.polls, t.ids = t.polls[:end], t.ids[:end]
}
