package deathwatch

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher is this process's side of the watching thread. It exists while anything is watched.
type watcher struct {
	conn *net.UnixConn // to the thread
	died map[uint64]func()
}

var (
	mu          sync.Mutex
	current     *watcher
	lastID      uint64
	unsupported error // why the thread cannot be started; nil = it can, or was not tried
)

// Messages between the process and the thread: an operation and the ID of a connection.
const (
	opWatch byte = iota + 1 // carries the descriptor
	opStop
	opQuit
	opDied   // from the thread: the connection ended without a byte
	opClosed // from the thread: the peer stopped watching, or the connection failed

	messageLen = 9
)

func message(op byte, id uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{op}, id)
}

// Watch takes ownership of a connection on which neither side sends anything else. It calls died
// if the process at the other end dies; that process must watch its end too. stop ends the watch
// and tells the peer that this is no death. If Watch fails, it closes the connection after having
// told the peer the same.
func Watch(conn net.Conn, died func()) (stop func(), err error) {
	defer func() {
		if err != nil {
			_, _ = conn.Write([]byte{0})
		}
		_ = conn.Close()
	}()
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("deathwatch: a %T has no descriptor", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("deathwatch: %w", err)
	}
	mu.Lock()
	defer mu.Unlock()
	w, err := running()
	if err != nil {
		return nil, err
	}
	lastID++
	id := lastID
	var failure error
	err = raw.Control(func(fd uintptr) {
		_, _, failure = w.conn.WriteMsgUnix(message(opWatch, id), unix.UnixRights(int(fd)), nil)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		w.quitIfIdle()
		return nil, fmt.Errorf("deathwatch: pass a connection to the thread: %w", err)
	}
	w.died[id] = died
	return func() { w.stop(id) }, nil
}

// running returns the current watcher and starts one if there is none. The caller holds mu.
func running() (*watcher, error) {
	if current != nil || unsupported != nil {
		return current, unsupported
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("deathwatch: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "deathwatch")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = unix.Close(pair[1])
		return nil, fmt.Errorf("deathwatch: %w", err)
	}
	started := make(chan error)
	onOwnThread(func() { runThread(pair[1], started) })
	err = <-started
	_ = unix.Close(pair[1]) // the thread has its own copy
	if err != nil {
		_ = conn.Close()
		unsupported = fmt.Errorf("deathwatch: no thread with its own descriptor table: %w", err)
		return nil, unsupported
	}
	current = &watcher{conn: conn.(*net.UnixConn), died: map[uint64]func(){}}
	go current.receive()
	return current, nil
}

func (w *watcher) stop(id uint64) {
	mu.Lock()
	defer mu.Unlock()
	if _, watched := w.died[id]; !watched {
		return
	}
	delete(w.died, id)
	_, _ = w.conn.Write(message(opStop, id))
	w.quitIfIdle()
}

// quitIfIdle ends the thread if nothing is watched. The caller holds mu.
func (w *watcher) quitIfIdle() {
	if len(w.died) == 0 && current == w {
		current = nil
		_, _ = w.conn.Write(message(opQuit, 0))
		_ = w.conn.Close()
	}
}

// receive handles the messages of the thread.
func (w *watcher) receive() {
	b := make([]byte, messageLen)
	for {
		n, err := w.conn.Read(b)
		if err != nil || n != messageLen {
			return
		}
		mu.Lock()
		id := binary.LittleEndian.Uint64(b[1:])
		died := w.died[id]
		delete(w.died, id)
		w.quitIfIdle()
		mu.Unlock()
		if died != nil && b[0] == opDied {
			died()
		}
	}
}
