package gpus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/internal/wait"
)

// message is what NVIDIA's driver says of an error.
type message struct {
	address string // of the GPU on the PCI bus, see address
	xid     int
	text    string
}

// fatal are the numbers of errors after which NVIDIA's catalogue of them asks for a reset of the
// GPU, or of the machine. The others are of programs (13, 31, 43 and so on), or for information.
//
// Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, immediate action
// RESET_GPU or RESTART_BM, and 48, for which that depends.
var fatal = []int{46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}

// recoveryAction is the number of the message with which the driver says what it needs now:
//
//	154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
const recoveryAction = 154

func (m message) fatal() bool {
	if m.xid == recoveryAction {
		return strings.Contains(m.text, " to 0x") && !strings.Contains(m.text, " to 0x0 ")
	}
	return slices.Contains(fatal, m.xid)
}

// String formats it as "Xid 79: GPU has fallen off the bus".
func (m message) String() string {
	if m.text == "" {
		return fmt.Sprintf("Xid %d", m.xid)
	}
	return fmt.Sprintf("Xid %d: %s", m.xid, m.text)
}

var (
	xidLine = regexp.MustCompile(`^NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]+:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})[^)]*\): (\d{1,6})(?:, )?(.*)$`)
	process = regexp.MustCompile(`^(pid='?[^,]*, |name='?[^,]*, |channel [^,]*, )+`)
)

// parseRecord reads a record of /dev/kmsg, of which there is one in each read:
//
//	4,1234,98765432,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python, GPU has fallen off the bus.
//
// The first number has the facility in its upper bits: 0 is the kernel. Others are programs, which
// could say anything.
func parseRecord(record string) (m message, ok bool) {
	head, text, _ := strings.Cut(record, ";")
	level, _, _ := strings.Cut(head, ",")
	n, err := strconv.Atoi(level)
	if err != nil || n>>3 != 0 {
		return m, false
	}
	text, _, _ = strings.Cut(text, "\n") // lines with a space first are its properties
	f := xidLine.FindStringSubmatch(text)
	if f == nil {
		return m, false
	}
	m.address = address(f[1])
	m.xid, _ = strconv.Atoi(f[2])
	m.text = strings.TrimRight(process.ReplaceAllString(f[3], ""), ". ")
	return m, true
}

// address writes addresses on the PCI bus in one way: nvidia-smi says 00000000:3B:00.0 for what is
// 0000:3b:00 in messages.
func address(text string) string {
	text, _, _ = strings.Cut(strings.ToLower(text), ".")
	domain, rest, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(domain, 16, 32)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%x:%s", n, rest)
}

// follow sends messages of the driver that come from now on, until the returned function is called.
// It closes said when the file ends.
func follow(ctx context.Context, path string, said chan<- message) (stop func(), err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil && !errors.Is(err, unix.ESPIPE) {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "seek", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(said)
		record := make([]byte, 16<<10) // more than the kernel writes in one
		for {
			n, err := file.Read(record)
			switch {
			case errors.Is(err, unix.EPIPE): // older ones were overwritten before they were read
				continue
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EINTR):
				if !wait.Sleep(ctx, time.Second) {
					return
				}
				continue
			case err != nil:
				return
			}
			for line := range strings.SplitSeq(string(record[:n]), "\n") {
				m, ok := parseRecord(line)
				if !ok {
					continue
				}
				select {
				case said <- m:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		_ = file.Close()
		<-done
	}, nil
}
