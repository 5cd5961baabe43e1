package errorfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/errorreport"
)

// TestErrorFile: whatever a program puts in place of torch's error file is described, and must not
// block the agent.
func TestErrorFile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(`{"message":"another user's"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, c := range map[string]struct {
		put     func(path string) error
		message string
	}{
		"nothing":    {func(string) error { return nil }, ""},
		"flat":       {write(`{"message":"out of memory"}`), "out of memory"},
		"deep":       {write(`{"message":{"message":"ValueError: x","extraInfo":{}}}`), "ValueError: x"},
		"a long one": {write(`{"message":{"message":"ValueError: ` + strings.Repeat("é\\n", 100_000) + `","extraInfo":{}}}`), "ValueError: é\né"},
		"a fifo":     {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "no regular file"},
		"a link":     {func(path string) error { return os.Symlink(secret, path) }, "is a link"},
		"a folder":   {func(path string) error { return os.Mkdir(path, 0o700) }, "no regular file"},
		"six GiB of nothing": {func(path string) error {
			if err := write("")(path); err != nil {
				return err
			}
			return os.Truncate(path, 6<<30)
		}, "limit error-file: 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "error.json")
			if err := c.put(path); err != nil {
				t.Fatal(err)
			}
			got, _, _ := read(path, "", nil)
			if name == "a long one" && (!strings.HasSuffix(got, "bytes, 65536 were read]") || len(got) > 70_000) {
				t.Errorf("%d bytes, the end is %q", len(got), got[len(got)-60:])
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("it is still there")
			}
			if c.message == "" && got != "" || !strings.Contains(got, c.message) {
				t.Errorf("the message is %q, want %q", got, c.message)
			}
		})
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error("what the link named was removed:", err)
	}
	if int64(limits.Errors.Max) != 64<<10 {
		t.Error("the limit is another one than documented")
	}
}

// TestRecorded: the exception of an error file as torch's decorator writes it, from the user's own
// frame. It takes precedence over later log lines.
func TestRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "error.json")
	const file = `{"message": {"message": "RuntimeError: batch 5 is broken", "extraInfo": {"py_callstack":
		"Traceback (most recent call last):\n  File \"/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py\", line 346, in wrapper\n    return f(*args, **kwargs)\n  File \"/home/ada/train.py\", line 13, in main\n    raise RuntimeError(\"batch 5 is broken\") from e\nRuntimeError: batch 5 is broken\n", "timestamp": "1764000000"}}}`
	raised := time.Unix(1764000000, 400e6)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(file, "\n", " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, raised, raised); err != nil {
		t.Fatal(err)
	}
	x := worker.ProcessExited{ExitCode: 1, Exception: &tables.Exception{Type: "ChildFailedError"}, Age: 50 * time.Millisecond}
	Record(&x, path, "", nil, "/home/ada", raised.Add(350*time.Millisecond))
	want := tables.Exception{Type: "RuntimeError", Message: "batch 5 is broken", File: "train.py", Line: 13, Function: "main", BeforeMS: 300}
	if x.Exception == nil || *x.Exception != want {
		t.Errorf("got %+v, want %+v", x.Exception, want)
	}
	if len(x.Lines) != 1 || x.Lines[0] != "RuntimeError: batch 5 is broken" {
		t.Errorf("lines %q", x.Lines)
	}
}

// TestRaisedInGo: what a program in Go leaves says where it has called Regroup, and which kind of
// error it was.
func TestRaisedInGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "error.json")
	t.Setenv(errorreport.Env, path)
	if err := errorreport.Raised("reproducible.SilentCorruptionError", "rank 1 has another state\nthan 2 others"); err != nil {
		t.Fatal(err)
	}
	x := worker.ProcessExited{ExitCode: 1}
	Record(&x, path, path, nil, "", time.Now())
	e := x.Exception
	if !e.SilentCorruption() || e.Message != "rank 1 has another state than 2 others" || filepath.Base(e.File) != "errorfile_test.go" || !strings.HasSuffix(e.Function, ".TestRaisedInGo") || e.Line == 0 {
		t.Errorf("got %+v", e)
	}
	t.Setenv(errorreport.Env, filepath.Join(t.TempDir(), "no", "folder"))
	if err := errorreport.Raised("x", "y"); err == nil || !strings.Contains(err.Error(), "the error file was not written") {
		t.Errorf("without its folder: %v", err)
	}
}

// TestEarlier: a launcher within the program copies the error file of a child later; torch's
// timestamp has whole seconds, and is ignored where it says less than the file's own time.
func TestEarlier(t *testing.T) {
	written := time.Unix(1764000000, 400e6)
	for timestamp, want := range map[string]time.Time{
		`"1764000000"`:        written,
		`"1763999990"`:        time.Unix(1763999991, 0),
		`1763999990.25`:       time.Unix(1763999990, 250e6),
		`"1764000000.125000"`: time.Unix(1764000000, 125e6),
		`"1764000009"`:        written,
		`"soon"`:              written,
		`"NaN"`:               written,
		`"-5"`:                written,
		`"1e300"`:             written,
		``:                    written,
	} {
		if got := earlier(written, timestamp); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", timestamp, got, want)
		}
	}
}

// TestWhatTheErrorFileSaysIsConcealed: the message, the exception and the lines.
func TestWhatTheErrorFileSaysIsConcealed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "error.json")
	if err := os.WriteFile(file, []byte(`{"message":{"message":"ValueError: s3cr3t","extraInfo":{"py_callstack":"Traceback (most recent call last):\n  File \"/a/t.py\", line 1, in s3cr3t\nValueError: s3cr3t\n"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	x := worker.ProcessExited{ExitCode: 1, Lines: []string{"before"}}
	Record(&x, file, "", nil, "", time.Now())
	Conceal(&x, func(text string) string { return strings.ReplaceAll(text, "s3cr3t", "****") })
	if x.Exception == nil || x.Exception.Message != "****" || x.Exception.Function != "****" || len(x.Lines) != 2 || x.Lines[1] != "ValueError: ****" {
		t.Errorf("%+v, %+v", x.Lines, x.Exception)
	}
}

// TestAnErrorFileIsKept where it is asked for, without secrets; a file of others is not.
func TestAnErrorFileIsKept(t *testing.T) {
	dir := t.TempDir()
	path, kept, linked := filepath.Join(dir, "w1.json"), filepath.Join(dir, "error.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(path, []byte(`{"message":"s3cr3t"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, linked); err != nil {
		t.Fatal(err)
	}
	hide := func(text string) string { return strings.ReplaceAll(text, "s3cr3t", "****") }
	for name, c := range map[string]struct {
		from, to string
		hide     func(string) string
		want     string // of kept; empty = it is not there
		fails    string
	}{
		"copied":            {path, kept, nil, `{"message":"s3cr3t"}`, ""},
		"concealed":         {path, kept, hide, `{"message":"****"}`, ""},
		"nowhere":           {path, "", hide, "", ""},
		"nothing":           {path + ".gone", kept, hide, "", ""},
		"a link":            {linked, kept, nil, "", "it is a link"},
		"it lies there":     {kept, kept, hide, "", ""},
		"nowhere to put it": {path, filepath.Join(dir, "gone", "error.json"), nil, "", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Keep(c.from, c.to, nil, c.hide); (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%v, want %q", err, c.fails)
			}
			got, err := os.ReadFile(kept)
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
			_ = os.Remove(kept)
		})
	}
	quoted := func(text string) string { return strings.ReplaceAll(text, "a\"b\nü", "****") }
	for text, want := range map[string]string{
		`{"message":"s3cr3t"}`:                      `{"message":"****"}`,
		`{"message":{"n":12,"x":["a\"b\n\u00fc"]}}`: `{"message":{"n":12,"x":["****"]}}`,
		`s3cr3t, which is no JSON`:                  `****, which is no JSON`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Keep(path, path, nil, func(s string) string { return hide(quoted(s)) }); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(path, append([]byte(`{"message":"s3cr3t`), make([]byte, 4<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Keep(path, path, nil, hide); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a file that is too large: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("one that may have secrets is there: %v", err)
	}
}
