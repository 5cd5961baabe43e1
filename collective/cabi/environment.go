package main

// #include "process.h"
import "C"

import (
	"os"
	"strings"
	"unsafe"
)

// init takes over the variables that the program has set or removed before it loaded the library,
// from the copy that the loading thread has made: this runs beside the program. Go's runtime reads
// those that the process was started with: without this, a script that sets
// os.environ["REGROUP_CHECKPOINT_DIR"] and then imports regroup would be ignored without a word, as
// would a worker that was forked from a server.
func init() { //nolint:gochecknoinits // before the first call of the library, and without one of its host
	if C.rgx_environment == nil {
		return // there was no memory for the copy
	}
	current := map[string]string{}
	for p := C.rgx_environment; *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) { //nolint:gosec // the array ends with nil
		name, value, ok := strings.Cut(C.GoString(*p), "=")
		if _, twice := current[name]; ok && !twice { // the first of several counts, as for getenv
			current[name] = value
		}
	}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if now, ok := current[name]; !ok {
			_ = os.Unsetenv(name) // the name is one that the runtime has read
		} else if now == value {
			delete(current, name)
		}
	}
	for name, value := range current {
		_ = os.Setenv(name, value) // the name is one that the program has set
	}
}
