package vigil

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// keeper is this process's side of the thread. It lives while anything is held.
type keeper struct {
	conn *net.UnixConn // to the thread
	held map[uint64]func()
}

var (
	mu      sync.Mutex
	current *keeper
	last    uint64 // number of the newest connection
	never   error  // why there can be no thread
)

// What the two say to each other: an operation, and the number of a connection.
const (
	take byte = iota + 1 // with the descriptor
	drop
	quit
	over // the thread: it has ended, without a word
	gone // the thread: it has ended otherwise

	messageLen = 9
)

func message(op byte, id uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{op}, id)
}

// Hold takes a connection over, on which nothing is ever sent. ended is called if the process
// at the other end, which holds its end too, has died. release lets go of it. After an error
// the connection is closed, and the other end knows that this was no death.
func Hold(conn net.Conn, ended func()) (release func(), err error) {
	defer func() {
		if err != nil {
			_, _ = conn.Write([]byte{0})
		}
		_ = conn.Close()
	}()
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("vigil: a %T is no connection of the system", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("vigil: %w", err)
	}
	mu.Lock()
	defer mu.Unlock()
	k, err := running()
	if err != nil {
		return nil, err
	}
	last++
	id := last
	var failure error
	err = raw.Control(func(fd uintptr) {
		_, _, failure = k.conn.WriteMsgUnix(message(take, id), unix.UnixRights(int(fd)), nil)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		k.settle()
		return nil, fmt.Errorf("vigil: hand a connection over: %w", err)
	}
	k.held[id] = ended
	return func() { k.release(id) }, nil
}

// running returns the thread, and starts it if there is none. The caller holds mu.
func running() (*keeper, error) {
	if current != nil || never != nil {
		return current, never
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("vigil: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "vigil")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = unix.Close(pair[1])
		return nil, fmt.Errorf("vigil: %w", err)
	}
	started := make(chan error)
	onThread(func() { keep(pair[1], started) })
	err = <-started
	_ = unix.Close(pair[1]) // the thread has its own
	if err != nil {
		_ = conn.Close()
		never = fmt.Errorf("vigil: no thread with descriptors of its own: %w", err)
		return nil, never
	}
	current = &keeper{conn: conn.(*net.UnixConn), held: map[uint64]func(){}}
	go current.listen()
	return current, nil
}

func (k *keeper) release(id uint64) {
	mu.Lock()
	defer mu.Unlock()
	if _, there := k.held[id]; !there {
		return
	}
	delete(k.held, id)
	_, _ = k.conn.Write(message(drop, id))
	k.settle()
}

// settle ends the thread if it has nothing to hold. The caller holds mu.
func (k *keeper) settle() {
	if len(k.held) == 0 && current == k {
		current = nil
		_, _ = k.conn.Write(message(quit, 0))
		_ = k.conn.Close()
	}
}

// listen hears what the thread says.
func (k *keeper) listen() {
	b := make([]byte, messageLen)
	for {
		n, err := k.conn.Read(b)
		if err != nil || n != messageLen {
			return
		}
		mu.Lock()
		id := binary.LittleEndian.Uint64(b[1:])
		ended := k.held[id]
		delete(k.held, id)
		k.settle()
		mu.Unlock()
		if ended != nil && b[0] == over {
			ended()
		}
	}
}
