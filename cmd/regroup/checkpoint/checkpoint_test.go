package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// written returns a folder with checkpoints of these steps.
func written(t *testing.T, steps ...uint64) string {
	t.Helper()
	path := t.TempDir()
	d, err := checkpoint.Open(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		err := d.Write(t.Context(), checkpoint.Image{
			Name: checkpoint.Name{Run: 1, Generation: 2, Step: step}, Layout: "layout", Meta: []byte("meta"),
			Tensors: []checkpoint.Tensor{{Name: "w", Type: "float32", Bytes: 4 << 20}}, Data: make([]byte, 4<<20),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func run(t *testing.T, w commandtest.World, args ...string) commandtest.Output {
	t.Helper()
	return w.Run(t.Context(), "", func(env command.Env) []*cobra.Command { return []*cobra.Command{Command(env)} }, args...)
}

// lines are those of a table, with one space between cells and without the age.
func lines(out string) []string {
	out = regexp.MustCompile(`\S+ ago`).ReplaceAllString(out, "AGE")
	var all []string
	for line := range strings.Lines(out) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

func TestListAndVerify(t *testing.T) {
	w := commandtest.New(t)
	path := written(t, 10, 20, 30)
	damaged := filepath.Join(path, "run-000001.generation-0000000002.step-00000000000020.checkpoint")
	b, err := os.ReadFile(damaged) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	b[3<<20] ^= 1
	if err := os.WriteFile(damaged, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, w, "checkpoint", "ls", path)
	want := []string{
		"STEP GENERATION RUN WRITTEN SIZE TENSORS PARTS VERIFIED STATE", "30 2 1 AGE 4 MiB 1 - - unread", "20 2 1 AGE 4 MiB 1 - - unread", "10 2 1 AGE 4 MiB 1 - - unread",
	}
	if got.Exit != 0 || fmt.Sprint(lines(got.Out)) != fmt.Sprint(want) {
		t.Errorf("ls: exit %d\n%s%s", got.Exit, got.Out, got.Err)
	}
	got = run(t, w, "ckpt", "verify", path)
	if got.Exit != 1 || !strings.Contains(got.Err, "1 of 3 checkpoints cannot be used") {
		t.Errorf("verify: exit %d\n%s", got.Exit, got.Err)
	}
	for i, want := range []string{"STATE", "intact", "damaged verify checkpoint l1/g2/20: the checkpoint is damaged: chunk 2 does not match its hash", "intact"} {
		if line := lines(got.Out)[i]; !strings.HasSuffix(line, want) {
			t.Errorf("verify: %q, want %q", line, want)
		}
	}
	for step, exit := range map[string]int{"30": 0, "20": 1, "40": 3} {
		if got := run(t, w, "checkpoint", "verify", path, "--step", step, "-o", "name"); got.Exit != exit {
			t.Errorf("step %s: exit %d, want %d: %s%s", step, got.Exit, exit, got.Out, got.Err)
		}
	}
}

func TestPrune(t *testing.T) {
	w := commandtest.New(t)
	path := written(t, 10, 20, 30)
	if got := run(t, w, "checkpoint", "prune", path, "--keep", "0"); got.Exit != 2 {
		t.Errorf("--keep 0: exit %d: %s", got.Exit, got.Err)
	}
	got := run(t, w, "checkpoint", "prune", path, "--keep", "2")
	if got.Exit != 0 || len(lines(got.Out)) != 1 || !strings.Contains(got.Out, "step-00000000000010.checkpoint") || got.Err != "1 checkpoint removed\n" {
		t.Errorf("exit %d: %s%s", got.Exit, got.Out, got.Err)
	}
	if got := run(t, w, "checkpoint", "ls", path, "-o", "name"); len(lines(got.Out)) != 2 {
		t.Errorf("left: %s", got.Out)
	}
}

// TestTheFolderOfAJob is that which it has named, if this machine has it.
func TestTheFolderOfAJob(t *testing.T) {
	w := commandtest.New(t)
	path := written(t, 10)
	for id, folder := range map[ident.JobID]string{"abs-7f3a": path, "rel-7f3a": filepath.Base(path), "gone-7f3a": "/nowhere/at/all", "none-7f3a": ""} {
		s := spec.Job{Workdir: filepath.Dir(path)}
		if folder != "" {
			s.Env = map[string]string{"REGROUP_CHECKPOINT_DIR": folder}
		}
		w.Job(events.JobView{Job: id, State: events.JobStateRunning, Submitted: clustertest.Now, Spec: s})
	}
	for ref, want := range map[string]struct {
		exit int
		said string
	}{
		"abs":         {0, "AGE 4 MiB"},
		"rel":         {0, "AGE 4 MiB"},
		"gone":        {3, "the checkpoints of gone-7f3a are in /nowhere/at/all, which is not on this machine"},
		"none":        {3, "none-7f3a names no folder for checkpoints"},
		"other":       {3, "other is no folder, and no job"},
		"./other":     {3, "./other is no folder"},
		t.TempDir():   {3, "there is no checkpoint in"},
		"/etc/passwd": {3, "/etc/passwd is no folder"},
	} {
		got := run(t, w, "checkpoint", "ls", ref)
		if all := strings.Join(lines(got.Out), " ") + got.Err; got.Exit != want.exit || !strings.Contains(all, want.said) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", ref, got.Exit, want.exit, want.said, got.Out, got.Err)
		}
	}
}
