package local

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAWorkerInGoThatComputesWrongly: on one of four slots each picture has one bit changed, as a
// memory at fault has it. The worker is the cause of the incident, its slot gets no more work, and
// the training ends with the state of one worker.
func TestAWorkerInGoThatComputesWrongly(t *testing.T) {
	dir, wrong := t.TempDir(), t.TempDir()
	changed(t, wrong)
	begin(t, dir, "up", "--slots", "4").prints("regroup is up")
	if _, errs, code := runLocal(t, dir, patience, "run", "--name", "one", "--recovery", "in-process", "--",
		bin("mnist"), "-reproducible", "-epochs", "1"); code != 0 {
		t.Fatalf("one exits %d:\n%s", code, errs)
	}
	script := fmt.Sprintf(`if [ "$REGROUP_SLOT" = 1 ]; then data=-data=%s; fi; exec %s -reproducible -epochs 1 -witness 4 $data`, wrong, bin("mnist"))
	_, errs, code := runLocal(t, dir, patience, "run", "--name", "three", "--workers", "3", "--recovery", "in-process", "--", "sh", "-c", script)
	if code != 0 || !strings.Contains(errs, "reproducible.SilentCorruptionError: rank ") {
		t.Errorf("three exits %d, want 0 and the error of the worker:\n%s", code, errs)
	}
	if out, errs, code := runLocal(t, dir, atOnce, "verify", "one", "three"); code != 0 {
		t.Errorf("verify exits %d:\n%s%s", code, out, errs)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{`"silent-corruption"`, []string{"events", "three", "-o", "jsonl"}},
		{"slot 1 quarantined", []string{"node", "ls"}},
	} {
		if out, errs, code := runLocal(t, dir, atOnce, c.args...); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%q exits %d, want 0 and %q:\n%s%s", c.args, code, c.want, out, errs)
		}
	}
}

// changed puts mnist's data into a folder, with one bit of each picture changed.
func changed(t *testing.T, folder string) {
	t.Helper()
	const from = "../../examples/mnist/data"
	files, err := filepath.Glob(from + "/*.gz")
	if err != nil || len(files) != 4 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(file), "train-images") {
			b = changedPictures(t, b)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func changedPictures(t *testing.T, compressed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	const header, pixels = 16, 28 * 28
	for at := header + pixels/2 + 14; at < len(b); at += pixels {
		b[at] ^= 1
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
