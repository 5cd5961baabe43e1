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
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/queue"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/internal/version"
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

// statuses are the statuses of errors. The first one that matches counts.
var statuses = []struct {
	err    error
	status status
}{
	{nccl.ErrStuck, statusStuck},
	{elastic.ErrPlannedChange, statusPlanned},
	{elastic.ErrStopped, statusStopped},
	{elastic.ErrUnfinished, statusLeft},
	{errEnd, statusEnd},
	{errTimeout, statusTimeout},
	{context.DeadlineExceeded, statusTimeout},
	{nccl.ErrUnavailable, statusUnsupported},
	{collective.ErrPeerLost, statusPeerLost},
	{collective.ErrAborted, statusAborted},
	{collective.ErrDiverged, statusDiverged},
	{collective.ErrRefused, statusRefused},
	{collective.ErrClosed, statusClosed},
	{nccl.ErrClosed, statusClosed},
	{collective.ErrInvalid, statusInvalid},
	{nccl.ErrInvalid, statusInvalid},
	{queue.ErrPending, statusInvalid},
}

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
	case errors.As(err, new(*queue.DeadlockError)):
		return statusDiverged, lost
	case errors.As(err, new(*queue.MismatchError)), errors.As(err, new(*queue.JoinedError)):
		return statusInvalid, lost
	}
	for _, known := range statuses {
		if errors.Is(err, known.err) {
			return known.status, lost
		}
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

var versionText = C.CString(version.Text())

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
