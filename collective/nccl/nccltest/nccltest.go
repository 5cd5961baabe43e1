// Package nccltest builds and controls fakes of NCCL and the CUDA driver that need no GPU, from
// ../testdata/fake. Tests that use it are ABI conformance tests: they show that arguments,
// structures, symbols, states, ends and errors are as the manuals say; nothing about speed, and
// nothing about real CUDA.
package nccltest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// Driver builds libcuda.so.1 into dir and returns its path. It needs gcc.
func Driver(dir string) (string, error) {
	path := filepath.Join(dir, "libcuda.so.1")
	return path, compile(path, []string{"-Wl,-soname,libcuda.so.1"}, "cuda.c", "records.c")
}

// Variant is one build of the fake NCCL.
type Variant struct {
	Version int      // such as 22703
	Define  []string // such as FAKE_WITHOUT_ALLREDUCE
	// Named says that the file has the name of the real one, to be found by it. Others
	// can be loaded side by side.
	Named bool
}

// Library builds a NCCL into dir, after Driver, and returns its path.
func (v Variant) Library(dir string) (string, error) {
	name := fmt.Sprintf("libnccl-%d", v.Version)
	args := []string{
		fmt.Sprintf("-DFAKE_VERSION=%d", v.Version),
		"-L" + dir, "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN",
	}
	for _, d := range v.Define {
		args = append(args, "-D"+d)
		name += "-" + d
	}
	path := filepath.Join(dir, name+".so")
	if v.Named {
		path = filepath.Join(dir, "libnccl.so.2")
		args = append(args, "-Wl,-soname,libnccl.so.2")
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, compile(path, args, "comm.c", "exchange.c", "collective.c", "elastic.c")
}

func compile(path string, flags []string, sources ...string) error {
	_, here, _, _ := runtime.Caller(0)
	args := []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread", "-o", path}
	for _, s := range sources {
		args = append(args, filepath.Join(filepath.Dir(here), "..", "testdata", "fake", s))
	}
	out, err := exec.Command("gcc", append(args, flags...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("gcc is needed for the tests of collective/nccl and what uses it: %w\n%s", err, out)
	}
	return nil
}

// Control controls the fake of this process.
type Control struct {
	// Knob sets a knob; testdata/fake documents each.
	Knob func(name string, value int64)
	// Living is the number of objects of a kind that were created and not freed.
	Living func(kind string) int64

	setDir     func(path string)
	violations func(text *byte, size int32) int32
	calls      func(text *byte, size int32) int32
}

// Steer loads the driver that Driver built, or finds it loaded. Shared state is stored in dir.
func Steer(driver, dir string) (*Control, error) {
	h, err := purego.Dlopen(driver, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	c := &Control{}
	purego.RegisterLibFunc(&c.Knob, h, "fakeKnob")
	purego.RegisterLibFunc(&c.Living, h, "fakeLiving")
	purego.RegisterLibFunc(&c.setDir, h, "fakeSetFolder")
	purego.RegisterLibFunc(&c.violations, h, "fakeViolations")
	purego.RegisterLibFunc(&c.calls, h, "fakeCalls")
	c.setDir(dir)
	return c, nil
}

// Violations is the number of violated rules so far, and a description of the last one.
func (c *Control) Violations() (n int, last string) {
	var text [512]byte
	n = int(c.violations(&text[0], int32(len(text))))
	return n, cut(text[:])
}

// Calls are the names of the calls since the last time, without those that only query the state.
func (c *Control) Calls() []string {
	text := make([]byte, 1<<16)
	c.calls(&text[0], int32(len(text)))
	return strings.Fields(cut(text))
}

func cut(text []byte) string {
	s, _, _ := bytes.Cut(text, []byte{0})
	return string(s)
}
