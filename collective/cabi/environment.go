package main

// extern char **environ;
import "C"

import (
	"os"
	"strings"
	"unsafe"
)

// init takes over the variables that the program has set or removed before it loaded the library.
// Go's runtime reads those that the process was started with: without this, a script that sets
// os.environ["REGROUP_CHECKPOINT_DIR"] and then imports regroup would be ignored without a word, as
// would a worker that was forked from a spare.
func init() { //nolint:gochecknoinits // before any function of the library is called
	current := map[string]string{}
	for p := C.environ; *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		if name, value, ok := strings.Cut(C.GoString(*p), "="); ok {
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
