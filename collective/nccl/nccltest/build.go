// Package nccltest builds and steers a NCCL and a CUDA driver that need no GPU, out
// of ../testdata/fake. Tests that use it are ABI conformance tests: they show that
// arguments, structures, symbols, states, ends and errors are as the manuals say;
// nothing about speed, and nothing about real CUDA.
package nccltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Driver builds libcuda.so.1 into folder and returns its path. gcc must be there.
func Driver(folder string) (string, error) {
	path := filepath.Join(folder, "libcuda.so.1")
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

// Library builds a NCCL into folder, where Driver was called before, and returns its path.
func (v Variant) Library(folder string) (string, error) {
	name := fmt.Sprintf("libnccl-%d", v.Version)
	args := []string{
		fmt.Sprintf("-DFAKE_VERSION=%d", v.Version),
		"-L" + folder, "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN",
	}
	for _, d := range v.Define {
		args = append(args, "-D"+d)
		name += "-" + d
	}
	path := filepath.Join(folder, name+".so")
	if v.Named {
		path = filepath.Join(folder, "libnccl.so.2")
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
