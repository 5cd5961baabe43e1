package nccl

import (
	"fmt"
	"path/filepath"

	"github.com/ebitengine/purego"
)

// rtldNoLoad makes dlopen answer only for what is in the process already (glibc's
// dlfcn.h; purego does not name it).
const rtldNoLoad = 4

// place is where a library is looked for.
type place struct {
	name     string // file name, such as "libnccl.so.2"
	explicit string // somebody said where: then nowhere else, but what is loaded
	by       string // who said so
	folders  []string
}

// locate opens a library. What the process has loaded comes first, because two
// copies of NCCL in one process, ours and the framework's, do not know of each
// other's communicators and memory. It must run on one thread: dlerror is per thread.
// What is opened is never closed, for NCCL and the driver leave threads behind.
func locate(p place) (handle uintptr, from string, tried []string) {
	try := func(path string, mode int, where string) bool {
		h, err := purego.Dlopen(path, mode)
		if err != nil {
			if where == "" {
				where = err.Error() // it names the path itself
			} else if mode&rtldNoLoad == 0 {
				where += ": " + err.Error()
			}
			tried = append(tried, where)
			return false
		}
		handle, from = h, path
		return true
	}
	const load = purego.RTLD_NOW | purego.RTLD_LOCAL
	if try(p.name, load|rtldNoLoad, "not loaded in this process") {
		return handle, p.name + " of this process", tried
	}
	if p.explicit != "" {
		try(p.explicit, load, p.by)
		return handle, from, tried
	}
	for _, folder := range p.folders {
		if try(filepath.Join(folder, p.name), load, "") {
			return handle, from, tried
		}
	}
	if try(p.name, load, "the system's folders") {
		from = p.name + " of the system"
	}
	return handle, from, tried
}

// given returns what an option or else a variable says, and who said it.
func given(option, variable string, getenv func(string) string) (path, by string) {
	if option != "" {
		return option, fmt.Sprintf("%s as told", option)
	}
	if v := getenv(variable); v != "" {
		return v, fmt.Sprintf("%s=%s", variable, v)
	}
	return "", ""
}
