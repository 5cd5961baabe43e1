//go:build cgo

package main

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra
#include <stdlib.h>
#include "process.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/queue"
	"github.com/regroup-io/regroup/elastic"
)

// status is an RG_… constant of regroup.h.
type status int32

const (
	statusOK status = iota
	statusInvalid
	statusPeerLost
	statusAborted
	statusDiverged
	statusRefused
	statusClosed
	statusTimeout
	statusForked // set by C only
	statusUnsupported
	statusFailed
	statusPlanned
	statusStopped
	statusEnd
	statusStuck
	statusLeft
)

// Errors that have a status of their own.
var (
	errTimeout = errors.New("not within the time given")
	errEnd     = errors.New("there is no further generation for this process")
)

// statusOf maps an error to its status. The caller also passes the text to C.
func statusOf(err error) (s status, lost int) {
	var peer *collective.PeerLostError
	lost = -1
	if errors.As(err, &peer) {
		lost = peer.Rank
	}
	switch {
	case err == nil:
		return statusOK, lost
	case errors.Is(err, nccl.ErrStuck):
		return statusStuck, lost
	case errors.Is(err, elastic.ErrPlannedChange):
		return statusPlanned, lost
	case errors.Is(err, elastic.ErrStopped):
		return statusStopped, lost
	case errors.Is(err, elastic.ErrUnfinished):
		return statusLeft, lost
	case errors.Is(err, errEnd):
		return statusEnd, lost
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded):
		return statusTimeout, lost
	case errors.Is(err, nccl.ErrUnavailable):
		return statusUnsupported, lost
	case errors.Is(err, collective.ErrPeerLost):
		return statusPeerLost, lost
	case errors.Is(err, collective.ErrAborted):
		return statusAborted, lost
	case errors.Is(err, collective.ErrDiverged), errors.As(err, new(*queue.DeadlockError)):
		return statusDiverged, lost
	case errors.Is(err, collective.ErrRefused):
		return statusRefused, lost
	case errors.Is(err, collective.ErrClosed), errors.Is(err, nccl.ErrClosed):
		return statusClosed, lost
	case errors.Is(err, collective.ErrInvalid), errors.Is(err, nccl.ErrInvalid), errors.Is(err, queue.ErrPending), errors.As(err, new(*queue.MismatchError)), errors.As(err, new(*queue.JoinedError)):
		return statusInvalid, lost
	}
	return statusFailed, lost
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{collective.ErrInvalid}, args...)...)
}

// answer returns the status of an error, and sets the text of rg_last_error.
func answer(err error) C.int {
	if err == nil {
		return C.int(statusOK)
	}
	s, lost := statusOf(err)
	text := C.CString(err.Error())
	defer C.free(unsafe.Pointer(text))
	C.rgx_fail(C.int32_t(lost), text)
	return C.int(s)
}

func rememberSocket(inode uint64) { C.rgx_ours(C.uint64_t(inode)) }

// version is that of the build.
var version = "dev"

var versionText = C.CString("regroup " + version + " " + runtime.Version())

//export rgo_version
func rgo_version() *C.char { return versionText }

// text copies a C string; nil is an empty one.
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

// fill copies text into a C buffer.
func fill(b []byte, buffer *C.char, size C.size_t) error {
	if buffer == nil || uint64(len(b)) >= uint64(size) {
		return invalidf("the buffer has %d bytes, %d are needed", uint64(size), len(b)+1)
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), len(b)+1)
	copy(to, b)
	to[len(b)] = 0
	return nil
}
