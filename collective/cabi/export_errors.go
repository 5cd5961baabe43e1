package main

/*
#cgo CFLAGS: -std=gnu11 -Wall -Wextra
#include <stdlib.h>
#include "process.h"
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// answer turns an error into a status, with the words for rg_last_error.
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

func remember(inode uint64) { C.rgx_ours(C.uint64_t(inode)) }

// version is that of the build.
var version = "dev"

var versionText = C.CString("regroup " + version + " " + runtime.Version())

//export rgo_version
func rgo_version() *C.char { return versionText }

// text copies a string of C's; none is an empty one.
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

// fill puts text into a buffer of C's.
func fill(b []byte, buffer *C.char, size C.size_t) error {
	if buffer == nil || uint64(len(b)) >= uint64(size) {
		return invalidf("the buffer has %d bytes, %d are needed", uint64(size), len(b)+1)
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), len(b)+1)
	copy(to, b)
	to[len(b)] = 0
	return nil
}
