package submitenv

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

const origin = "0123456789abcdef0123456789abcdef"

var ada = Environment{Jobs: ident.JobIDsOf("mnist", origin), Dir: "/home/ada", Variables: [][]byte{[]byte("A=b"), []byte("C=\xff\n")}}

func kept(t *testing.T) (Store, string) {
	t.Helper()
	s := Store{Dir: filepath.Join(t.TempDir(), "submitted")}
	if err := s.Keep(origin, ada); err != nil {
		t.Fatal(err)
	}
	return s, filepath.Join(s.Dir, origin+".json")
}

// TestAnEnvironmentIsKeptForItsJob, whichever of its possible ids the job has, as often as it is
// asked for, and no other user can read the file.
func TestAnEnvironmentIsKeptForItsJob(t *testing.T) {
	s, file := kept(t)
	for _, id := range ada.Jobs {
		if got, err := s.Load(origin, id); err != nil || !reflect.DeepEqual(got, ada) || got.Environ()[1] != "C=\xff\n" {
			t.Errorf("%s gets %+v, %v", id, got, err)
		}
	}
	for path, want := range map[string]os.FileMode{file: 0o600, s.Dir: 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s is %v, %v", path, info.Mode(), err)
		}
	}
	if err := s.Remove(origin); err != nil {
		t.Error(err)
	}
	if err := s.Remove(origin); err != nil {
		t.Error(err)
	}
	if _, err := s.Load(origin, ada.Jobs[0]); errcode.Of(err) != errcode.NotFound {
		t.Errorf("after its end: %v", err)
	}
}

// TestNobodyElseGetsIt: not another job that names it, and no name leads out of the folder.
func TestNobodyElseGetsIt(t *testing.T) {
	s, _ := kept(t)
	if e, err := s.Load(origin, "other-0123"); errcode.Of(err) != errcode.NotFound {
		t.Errorf("another job gets %+v, %v", e, err)
	}
	for _, name := range []string{"", "../" + origin[:29], "/etc/passwd", strings.ToUpper(origin), origin + "0", "..", "../../../../../../../etc/passwd."} {
		if _, err := s.Load(name, ada.Jobs[0]); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%q: %v", name, err)
		}
		if s.Remove(name) == nil || s.Keep(name, ada) == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

// TestOnlyAFileOfThisUserIsRead: what another user may have put there, or may read, is no
// environment.
func TestOnlyAFileOfThisUserIsRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives files to other users: run it as root, as those of the network")
	}
	for name, spoil := range map[string]func(path string) error{
		"link": func(path string) error {
			if err := os.Rename(path, path+".real"); err != nil {
				return err
			}
			return os.Symlink(path+".real", path)
		},
		"second name": func(path string) error { return os.Link(path, path+".2") },
		"mode":        func(path string) error { return os.Chmod(path, 0o640) },
		"owner":       func(path string) error { return os.Chown(path, 54321, 54321) },
		"fifo": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return syscall.Mkfifo(path, 0o600)
		},
		"directory": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
		"size":    func(path string) error { return os.Truncate(path, maxFile+1) },
		"content": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		s, path := kept(t)
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Load(origin, ada.Jobs[0]); err == nil || errcode.Of(err) == errcode.NotFound {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// TestWhatNoJobClaimsExpires, and what a job of the node has does not, however old it is.
func TestWhatNoJobClaimsExpires(t *testing.T) {
	s, file := kept(t)
	half := filepath.Join(s.Dir, "."+origin+".json-123")
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	expire := func(now time.Time, held ...ident.JobID) {
		t.Helper()
		if err := s.Expire(now, held); err != nil {
			t.Error(err)
		}
	}
	expire(now.Add(KeepFor - time.Minute))
	if !there(file) || !there(half) {
		t.Error("it has expired early")
	}
	expire(now.Add(2*KeepFor), "other-1", ada.Jobs[2])
	if !there(file) || there(half) {
		t.Error("of the job that is here and of a write that was not finished, the wrong one is left")
	}
	expire(now.Add(3*KeepFor - time.Minute))
	if !there(file) {
		t.Error("the time begins when the job was last here")
	}
	expire(now.Add(3*KeepFor + time.Minute))
	if there(file) {
		t.Error("it has not expired")
	}
	if err := (Store{Dir: filepath.Join(s.Dir, "nowhere")}).Expire(now, nil); err != nil {
		t.Error(err)
	}
}
