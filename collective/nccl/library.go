package nccl

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Options configure where the libraries are. The zero value searches everywhere.
type Options struct {
	// NCCL and CUDA are paths of libnccl.so.2 and libcuda.so.1. Empty: the variables
	// REGROUP_NCCL_LIBRARY and REGROUP_CUDA_LIBRARY. If one is given, only a library that the
	// process has loaded already precedes it, and nothing follows.
	NCCL, CUDA string
	// Search lists directories to search before the system's, such as nvidia/nccl/lib inside
	// Python's site-packages.
	Search []string
	// CallGrace is how long a native call may outlast the caller's context before its thread counts
	// as stuck. Zero: 5 s. Too small: a slow allocation is taken for a hang; too large: a hang is
	// noticed later.
	CallGrace time.Duration
	// WatchEvery is how often NCCL is polled for errors while no caller waits. Zero: 5 ms. A poll
	// costs a few microseconds of one core per communicator.
	WatchEvery time.Duration
}

// Library is NCCL and the CUDA driver, loaded. It is never unloaded.
type Library struct {
	opt     Options
	nccl    ncclCalls
	cuda    cudaCalls
	version Version
	driver  int32
	from    [2]string

	mu    sync.Mutex
	stuck []*Comm // native threads may still write to their memory: never garbage collected
}

// Open finds and loads both libraries and initializes the driver. The error is an
// *UnavailableError that names everything that was tried.
func Open(o Options) (*Library, error) {
	if o.CallGrace < 0 || o.WatchEvery < 0 {
		return nil, invalid("a duration is negative")
	}
	o.CallGrace = cmp.Or(o.CallGrace, 5*time.Second)
	o.WatchEvery = cmp.Or(o.WatchEvery, 5*time.Millisecond)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	l := &Library{opt: o}
	// The driver first: NCCL looks for it while it initializes, and then finds ours.
	path, by := explicitPath(o.CUDA, "REGROUP_CUDA_LIBRARY", os.Getenv)
	if err := l.load(0, place{"libcuda.so.1", path, by, o.Search}, &l.cuda); err != nil {
		return nil, err
	}
	// This fails if there is no GPU or the kernel module is of another version.
	err := l.driverError("cuInit", l.cuda.Init(0))
	if err == nil {
		err = l.driverError("cuDriverGetVersion", l.cuda.DriverGetVersion(&l.driver))
	}
	if err != nil {
		return nil, &UnavailableError{Library: l.from[0], Cause: err}
	}
	path, by = explicitPath(o.NCCL, "REGROUP_NCCL_LIBRARY", os.Getenv)
	if err := l.load(1, place{"libnccl.so.2", path, by, o.Search}, &l.nccl); err != nil {
		return nil, err
	}
	if err := l.check("ncclGetVersion", l.nccl.GetVersion(&l.version), 0); err != nil {
		return nil, &UnavailableError{Library: l.from[1], Cause: err}
	}
	return l, nil
}

func (l *Library) load(i int, p place, calls any) error {
	handle, from, tried := locate(p)
	if handle == 0 {
		return &UnavailableError{Library: p.name, Tried: tried}
	}
	l.from[i] = from
	if missing := bind(handle, calls); len(missing) > 0 {
		return &UnavailableError{Library: from, Missing: missing}
	}
	return nil
}

// Version is that of NCCL.
func (l *Library) Version() Version { return l.version }

// Driver is the newest CUDA version that the driver supports, such as "12.4".
func (l *Library) Driver() string { return fmt.Sprintf("%d.%d", l.driver/1000, l.driver%1000/10) }

// From is where the driver and NCCL were found.
func (l *Library) From() (cuda, nccl string) { return l.from[0], l.from[1] }

// UniqueID returns the ID of a new communicator. One rank calls it and sends it to the others; its
// process must live until all of them are connected.
func (l *Library) UniqueID() (UniqueID, error) {
	var id idArgument
	err := l.check("ncclGetUniqueId", l.nccl.GetUniqueID(&id), 0)
	return id.Internal, err
}

// check is nil for success, and failure for other results.
func (l *Library) check(op string, code Code, comm uintptr) error {
	if code == Success {
		return nil
	}
	return l.failure(op, code, comm)
}

// failure turns a result into an error; comm may be 0.
func (l *Library) failure(op string, code Code, comm uintptr) error {
	return &Error{Op: op, Code: code, Text: l.nccl.GetErrorString(code), Last: l.nccl.GetLastError(comm)}
}

// driverError is nil for success.
func (l *Library) driverError(op string, code int32) error {
	if code == cudaSuccess {
		return nil
	}
	e := &DriverError{Op: op, Code: code, Name: "unknown error"}
	var name unsafe.Pointer
	if l.cuda.GetErrorName(code, &name) == cudaSuccess && name != nil {
		n := 0
		for *(*byte)(unsafe.Add(name, n)) != 0 {
			n++
		}
		e.Name = string(unsafe.Slice((*byte)(name), n))
	}
	return e
}

// rtldNoLoad makes dlopen return only libraries that the process has loaded already (glibc's
// dlfcn.h; purego does not name it).
const rtldNoLoad = 4

type place struct {
	name     string // file name, such as "libnccl.so.2"
	explicit string // a given path: no other is tried, except a loaded library
	by       string // what gave the path
	dirs     []string
}

// locate opens a library. A library that the process has loaded comes first, because two copies of
// NCCL in one process do not know of each other's communicators and memory. It must run on one
// thread: dlerror is per thread. The library is never closed, because NCCL and the driver leave
// threads behind.
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
	for _, dir := range p.dirs {
		if try(filepath.Join(dir, p.name), load, "") {
			return handle, from, tried
		}
	}
	if try(p.name, load, "the system's folders") {
		from = p.name + " of the system"
	}
	return handle, from, tried
}

// explicitPath returns the path of an option or else of a variable, and which of them gave it.
func explicitPath(option, variable string, getenv func(string) string) (path, by string) {
	if option != "" {
		return option, fmt.Sprintf("%s as told", option)
	}
	if v := getenv(variable); v != "" {
		return v, fmt.Sprintf("%s=%s", variable, v)
	}
	return "", ""
}

// bind fills the function fields of calls from the library and returns the names of those that it
// lacks, except optional ones, which stay nil.
func bind(library uintptr, calls any) (missing []string) {
	fields := reflect.ValueOf(calls).Elem()
	for i := range fields.NumField() {
		tag := fields.Type().Field(i).Tag
		symbol := tag.Get("symbol")
		address, err := purego.Dlsym(library, symbol)
		switch {
		case err == nil:
			purego.RegisterFunc(fields.Field(i).Addr().Interface(), address)
		case tag.Get("since") == "":
			missing = append(missing, symbol)
		}
	}
	return missing
}

// since is the first version with an optional call.
func since(field string) Version {
	f, ok := reflect.TypeFor[ncclCalls]().FieldByName(field)
	if !ok {
		panic("nccl: no call " + field)
	}
	n, err := strconv.Atoi(f.Tag.Get("since"))
	if err != nil {
		panic("nccl: call " + field + " is not optional")
	}
	return Version(n)
}

// Feature is something that depends on the version of NCCL.
type Feature struct {
	Name    string
	Since   Version // the first release with it
	Present bool    // whether the library at hand has it
}

// Features lists the version-dependent features, oldest first.
func (l *Library) Features() []Feature {
	n := &l.nccl
	return []Feature{
		{"non-blocking communicators", 21403, true}, // Open refuses a library without them
		{"Reform by shrinking", since("CommShrink"), n.CommShrink != nil},
		{"Reform by revoking", since("CommRevoke"), n.CommRevoke != nil},
	}
}
