// Package nccltest builds and controls fakes of NCCL and the CUDA driver that need no GPU, from
// ../testdata/fake. Tests that use it are ABI conformance tests: they show that arguments,
// structures, symbols, states, ends and errors are as the manuals say; nothing about speed, and
// nothing about real CUDA.
package nccltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
		return fmt.Errorf("gcc is needed for the tests of collective/nccl: %w\n%s", err, out)
	}
	return nil
}
