package checkpoints

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

const kib = 1 << 10

func newStore(t *testing.T) *Store {
	t.Helper()
	return &Store{Dir: filepath.Join(t.TempDir(), "checkpoints"), Space: 100 * kib}
}

// withFile makes that of a job, with a file of so many bytes.
func (s *Store) withFile(t *testing.T, job ident.JobID, size int) string {
	t.Helper()
	dir, err := s.Folder(job, os.Geteuid(), os.Getegid())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), bytes.Repeat([]byte{1}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *Store) age(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(dir, at, at); err != nil {
		t.Fatal(err)
	}
}

// TestAFolderIsItsJobsAlone, and there until the job ends.
func TestAFolderIsItsJobsAlone(t *testing.T) {
	s := newStore(t)
	dir := s.withFile(t, "mnist-1", 10)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if again, err := s.Folder("mnist-1", os.Geteuid(), os.Getegid()); again != dir || err != nil || !exists(filepath.Join(dir, "a")) {
		t.Errorf("%s, %v: the second time it is another one, or empty", again, err)
	}
	for _, bad := range []ident.JobID{"", "../x", "a/b"} {
		if _, err := s.Folder(bad, 0, 0); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	other := s.withFile(t, "other-1", 10)
	if err := s.End("mnist-1"); err != nil || exists(dir) || !exists(other) {
		t.Errorf("%v; it is there: %v, the other: %v", err, exists(dir), exists(other))
	}
	if err := s.Reserve("mnist-1", 1, []ident.JobID{"mnist-1"}); errcode.Of(err) != errcode.Conflict {
		t.Errorf("a job that has ended gets space: %v", err)
	}
}

// TestAllTogetherStayWithinTheBound: what a job was granted counts before it is written, and what
// was written before an agent's restart counts too.
func TestAllTogetherStayWithinTheBound(t *testing.T) {
	s := newStore(t)
	s.withFile(t, "a-1", 1)
	s.withFile(t, "b-1", 1)
	held := []ident.JobID{"a-1", "b-1", "c-1"}
	for _, c := range []struct {
		job  ident.JobID
		kib  int64
		want errcode.Code
	}{
		{"a-1", 30, ""},
		{"b-1", 21, errcode.Exhausted},
		{"b-1", 20, ""},
		{"a-1", 30, ""},
		{"a-1", 31, errcode.Exhausted},
		{"a-1", 10, ""},
		{"b-1", 40, ""},
	} {
		err := s.Reserve(c.job, c.kib*kib, held)
		if errcode.Of(err) != c.want {
			t.Errorf("%s asks for %d KiB: %v, want %q", c.job, c.kib, err, c.want)
		}
		if c.want != "" && !strings.Contains(err.Error(), "--checkpoint-space") {
			t.Errorf("%v does not say what to do", err)
		}
	}
	s.withFile(t, "a-1", 50*kib)
	later := &Store{Dir: s.Dir, Space: s.Space}
	if err := later.Reserve("c-1", 1, held); errcode.Of(err) != errcode.NotFound {
		t.Errorf("without a folder: %v", err)
	}
	s.withFile(t, "c-1", 1)
	if err := later.Reserve("c-1", 26*kib, held); errcode.Of(err) != errcode.Exhausted {
		t.Errorf("after a restart: %v", err)
	}
	if err := later.Reserve("c-1", 24*kib, held); err != nil {
		t.Error(err)
	}
}

// TestPartsInFoldersCount for the space that a job takes.
func TestPartsInFoldersCount(t *testing.T) {
	s := newStore(t)
	parts := filepath.Join(s.withFile(t, "a-1", 1), "x.parts")
	if err := os.Mkdir(parts, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parts, "rank-00000.safetensors"), make([]byte, 60*kib), 0o600); err != nil {
		t.Fatal(err)
	}
	s.withFile(t, "b-1", 1)
	held := []ident.JobID{"a-1", "b-1"}
	if err := s.Reserve("b-1", 20*kib, held); errcode.Of(err) != errcode.Exhausted {
		t.Error(err)
	}
	if err := s.Reserve("b-1", 19*kib, held); err != nil {
		t.Error(err)
	}
}

// TestWhatEndedJobsLeftGivesWay to a job that needs its space, the oldest first; what this node
// holds, or may soon hold again, does not.
func TestWhatEndedJobsLeftGivesWay(t *testing.T) {
	s := newStore(t)
	oldest, old, fresh, held := s.withFile(t, "w-1", 20*kib), s.withFile(t, "x-1", 20*kib), s.withFile(t, "y-1", 20*kib), s.withFile(t, "z-1", 20*kib)
	s.withFile(t, "a-1", 1)
	s.age(t, oldest, 3*time.Hour)
	s.age(t, old, 2*time.Hour)
	s.age(t, fresh, time.Minute)
	s.age(t, held, 4*time.Hour)
	for _, c := range []struct {
		kib               int64
		want              errcode.Code
		oldest, old, rest bool
	}{{10, "", true, true, true}, {11, "", false, true, true}, {21, "", false, false, true}, {31, errcode.Exhausted, false, false, true}} {
		err := s.Reserve("a-1", c.kib*kib, []ident.JobID{"a-1", "z-1"})
		if errcode.Of(err) != c.want || exists(oldest) != c.oldest || exists(old) != c.old || (exists(fresh) && exists(held)) != c.rest {
			t.Errorf("%d KiB: %v; there are %v %v %v %v", c.kib, err, exists(oldest), exists(old), exists(fresh), exists(held))
		}
	}
}

// TestAFolderWhoseJobDoesNotComeExpires, and that of a job that is here does not.
func TestAFolderWhoseJobDoesNotComeExpires(t *testing.T) {
	s := newStore(t)
	here, ended := s.withFile(t, "here-1", 1), s.withFile(t, "gone-1", 1)
	beside := filepath.Join(s.Dir, "Notes.txt")
	if err := os.WriteFile(beside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	expire := func(at time.Time) {
		t.Helper()
		if err := s.Expire(at, []ident.JobID{"here-1"}); err != nil {
			t.Error(err)
		}
	}
	expire(now.Add(KeepFor - time.Minute))
	if !exists(ended) {
		t.Error("it has expired early")
	}
	expire(now.Add(KeepFor + time.Minute))
	if exists(ended) || !exists(here) || !exists(beside) {
		t.Errorf("there are %v %v %v", exists(ended), exists(here), exists(beside))
	}
	if err := (&Store{Dir: filepath.Join(s.Dir, "none")}).Expire(now, nil); err != nil {
		t.Error(err)
	}
}

// TestAFolderThatOthersMayChangeIsNotUsed: nothing is made in it, and nothing removed.
func TestAFolderThatOthersMayChangeIsNotUsed(t *testing.T) {
	for name, spoil := range map[string]func(s *Store, theirs string) error{
		"a link": func(s *Store, theirs string) error {
			return errors.Join(os.RemoveAll(s.Dir), os.Symlink(theirs, s.Dir))
		},
		"writable by others": func(s *Store, _ string) error { return os.Chmod(s.Dir, 0o777) }, //nolint:gosec // that is the fault
	} {
		t.Run(name, func(t *testing.T) {
			s, other := newStore(t), newStore(t)
			dir := s.withFile(t, "mnist-1", 1)
			theirs := other.withFile(t, "mnist-1", 1)
			if err := spoil(s, other.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Folder("new-1", os.Geteuid(), os.Getegid()); err == nil || !strings.Contains(err.Error(), s.Dir) {
				t.Errorf("it is used: %v", err)
			}
			if err := s.End("mnist-1"); err == nil || !exists(dir) || !exists(theirs) {
				t.Errorf("%v; there are %v %v", err, exists(dir), exists(theirs))
			}
		})
	}
}

// TestFoldersOfAnotherUser belong to it, and it must be able to enter them.
func TestFoldersOfAnotherUser(t *testing.T) {
	s := newStore(t)
	above := filepath.Dir(s.Dir)
	for mode, want := range map[os.FileMode]bool{0o755: true, 0o711: true, 0o700: false, 0o766: false} {
		if err := os.Chmod(above, mode); err != nil { //nolint:gosec // a temporary folder
			t.Fatal(err)
		}
		err := s.Reachable(54321, 54321) // the folders above are those of the machine
		if blamed := err != nil && strings.Contains(err.Error(), above+" ("); blamed == want {
			t.Errorf("%s: %v", mode, err)
		}
	}
	if err := s.Reachable(uint32(os.Geteuid()), uint32(os.Getegid())); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		return // only root can give a folder away
	}
	dir, err := s.Folder("mnist-1", 54321, 54322)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 54321 || owner.Gid != 54322 {
		t.Errorf("it belongs to %+v", owner)
	}
}

// TestTheDiskIsLeftToOthers: however much is to stay free, it is a tenth of the disk at most.
func TestTheDiskIsLeftToOthers(t *testing.T) {
	s := newStore(t)
	s.withFile(t, "a-1", 1)
	s.Space = math.MaxInt64
	if err := s.Reserve("a-1", 1, []ident.JobID{"a-1"}); err != nil {
		t.Errorf("nothing is to stay free: %v", err)
	}
	_, free, err := disk(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Free = math.MaxInt64
	if err := s.Reserve("a-1", free, []ident.JobID{"a-1"}); errcode.Of(err) != errcode.Exhausted || !strings.Contains(err.Error(), "--checkpoint-free") {
		t.Errorf("a tenth is to stay free: %v", err)
	}
}
