package nccl

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

func TestTheLibrariesAreFoundInOrder(t *testing.T) {
	// A process finds what it has loaded, so each case is a process of its own.
	wheel := t.TempDir()
	for _, f := range []func() error{
		func() error { _, err := nccltest.Driver(wheel); return err },
		func() error { _, err := nccltest.Variant{Version: 22703, Named: true}.Library(wheel); return err },
	} {
		ok(t, f())
	}
	other := fake.Build(t, nccltest.Variant{Version: 23007})
	missing := fake.Build(t, nccltest.Variant{Version: 22809, Define: []string{"FAKE_WITHOUT_ALLREDUCE"}})
	text := filepath.Join(wheel, "text.so")
	ok(t, os.WriteFile(text, []byte("this is no library"), 0o600))

	for name, test := range map[string]struct {
		env  []string
		says []string
	}{
		"in a folder": {[]string{"NCCL_TEST_SEARCH=/nowhere " + wheel}, []string{
			"found " + wheel + "/libcuda.so.1 and " + wheel + "/libnccl.so.2 2.27.3 12.4",
		}},
		"by the system": {[]string{"LD_LIBRARY_PATH=" + wheel}, []string{
			"found libcuda.so.1 of the system and libnccl.so.2 of the system 2.27.3",
		}},
		"a variable before the folders": {[]string{"NCCL_TEST_SEARCH=" + wheel, "REGROUP_NCCL_LIBRARY=" + other}, []string{
			"libcuda.so.1 and " + other + " 2.30.7",
		}},
		"in the process before a variable": {[]string{
			"LD_LIBRARY_PATH=" + wheel, "NCCL_TEST_LOADED=" + wheel + "/libnccl.so.2", "REGROUP_NCCL_LIBRARY=" + other,
		}, []string{
			"libcuda.so.1 of this process and libnccl.so.2 of this process 2.27.3",
		}},
		"a variable that is wrong, and nothing after it": {[]string{"LD_LIBRARY_PATH=" + wheel, "REGROUP_CUDA_LIBRARY=/nowhere/libcuda.so"}, []string{
			"error libcuda.so.1 is not available", "tried not loaded in this process; REGROUP_CUDA_LIBRARY=/nowhere/libcuda.so: ", "No such file",
		}},
		"a file that is no library": {[]string{"NCCL_TEST_SEARCH=" + wheel, "REGROUP_NCCL_LIBRARY=" + text}, []string{
			"error libnccl.so.2 is not available", "REGROUP_NCCL_LIBRARY=" + text, "file too short",
		}},
		"a symbol is missing": {[]string{"NCCL_TEST_SEARCH=" + wheel, "REGROUP_NCCL_LIBRARY=" + missing}, []string{
			"error " + missing + " is not available: it lacks ncclAllReduce",
		}},
		"no GPU": {[]string{"NCCL_TEST_SEARCH=" + wheel, "REGROUP_FAKE_DEVICES=-1"}, []string{
			"libcuda.so.1 is not available: cuInit: CUDA_ERROR_NO_DEVICE (100)",
		}},
		"the GPUs are listed": {[]string{"NCCL_TEST_SEARCH=" + wheel, "REGROUP_FAKE_DEVICES=2"}, []string{
			"device 0 Fake GPU 0 GPU-00010203-0405-0607-0809-0a0b0c0d0e0f 5", "device 1 Fake GPU 1 GPU-10111213-",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := fake.Start(t, "open", test.env...)
			var out strings.Builder
			for p.Lines.Scan() {
				out.WriteString(p.Lines.Text() + "\n")
			}
			for _, s := range test.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q is not in\n%s", s, &out)
				}
			}
		})
	}
}

func TestALibraryThatIsNowhereNamesEveryPlace(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, _, tried := locate(place{name: "libregroup-none.so.9", dirs: []string{"/one", "/two"}})
	all := strings.Join(tried, "; ")
	for _, s := range []string{"not loaded", "/one/libregroup-none.so.9", "/two/libregroup-none.so.9", "the system's folders: libregroup-none.so.9"} {
		if handle != 0 || !strings.Contains(all, s) {
			t.Errorf("%q is not in %q", s, all)
		}
	}
	err := error(&UnavailableError{Library: "libregroup-none.so.9", Tried: tried})
	if !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := Open(Options{CallGrace: -1}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if path, by := explicitPath("a", "V", func(string) string { return "b" }); path != "a" || by != "a as told" {
		t.Error(path, by)
	}
}
