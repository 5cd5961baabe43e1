package jobflags

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

func parse(t *testing.T, args ...string) *Flags {
	t.Helper()
	f, _ := parseWith(t, args...)
	return f
}

// parseWith also returns the program's arguments.
func parseWith(t *testing.T, args ...string) (*Flags, []string) {
	t.Helper()
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetInterspersed(false)
	fs.String("log-level", "", "")
	fs.String("hosts", "", "")
	f := Add(fs)
	if err := fs.Parse(Spell(fs, args)); err != nil {
		t.Fatal(err)
	}
	return f, fs.Args()
}

func TestSpec(t *testing.T) {
	f := parse(t, "--name", "cifar", "--workers", "2:4", "--recovery", "in-process", "--max-restarts", "0", "--env", "A=1", "--env", "B=x=y",
		"--workdir", "/data", "--samples", "60000", "--stop-grace", "5s")
	got, err := f.Spec([]string{"python", "train.py"})
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Job{
		Name: "cifar", Command: []string{"python", "train.py"}, Workdir: "/data", Env: map[string]string{"A": "1", "B": "x=y"},
		Workers: spec.Workers{Min: 2, Max: 4}, Recovery: spec.RecoveryInProcess, Failures: spec.Failures{Max: new(int)},
		Stop: spec.Stop{Grace: spec.Duration(5 * time.Second)}, Data: spec.Data{Samples: 60000},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDefaults(t *testing.T) {
	f := parse(t)
	got, err := f.Spec([]string{"./train"})
	if err != nil {
		t.Fatal(err)
	}
	if want := (spec.Job{Name: "train", Command: []string{"./train"}, Workers: spec.Workers{Min: 1, Max: 1}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestEveryErrorAtOnce checks that all errors are reported, each by its flag.
func TestEveryErrorAtOnce(t *testing.T) {
	f := parse(t, "--name", "No", "--workers", "two", "--recovery", "maybe", "--max-restarts", "-1", "--env", "A", "--env", "RANK=1", "--stop-grace", "-1s")
	_, err := f.Spec(nil)
	if errcode.Of(err) != errcode.Invalid {
		t.Fatalf("got %v, want Invalid", err)
	}
	got := map[string]bool{}
	for _, x := range errcode.FieldErrorsOf(err) {
		got[x.Path] = true
	}
	want := map[string]bool{
		"--name": true, "--workers": true, "--recovery": true, "--max-restarts": true, "--env": true, "--env RANK": true,
		"--stop-grace": true, "command": true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	_, err = parse(t, "--workers", "4:2").Spec([]string{"x"})
	if fs := errcode.FieldErrorsOf(err); len(fs) != 1 || fs[0].Path != "--workers" {
		t.Errorf("4:2 gives %v", err)
	}
}

func TestLimits(t *testing.T) {
	got, err := parse(t, "--same-step", "5", "--reset-limit", "0", "--elastic-timeout", "600", "--start-timeout", "30s", "--hang", "5m").Spec([]string{"./train"})
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Job{
		Name: "train", Command: []string{"./train"}, Workers: spec.Workers{Min: 1, Max: 1}, Failures: spec.Failures{SameStep: 5},
		Elastic: spec.Elastic{ResetLimit: new(int), Timeout: spec.Duration(10 * time.Minute), StartWithin: spec.Duration(30 * time.Second)},
		Health:  spec.Health{Hang: spec.Duration(5 * time.Minute)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	_, err = parse(t, "--same-step", "0", "--reset-limit", "-1", "--elastic-timeout", "0", "--start-timeout", "-3", "--hang", "2s").Spec([]string{"./train"})
	var paths []string
	for _, x := range errcode.FieldErrorsOf(err) {
		paths = append(paths, x.Path)
	}
	slices.Sort(paths)
	if want := []string{"--elastic-timeout", "--hang", "--reset-limit", "--same-step", "--start-timeout"}; !slices.Equal(paths, want) {
		t.Errorf("errors about %v, want %v: %v", paths, want, err)
	}
}

// TestMultipleOf: the number of workers that is none of its multiples is refused, once, by the flag
// that gives it.
func TestMultipleOf(t *testing.T) {
	got, err := parse(t, "--workers", "2:8", "--multiple-of", "2").Spec([]string{"./train"})
	if err != nil || got.Elastic != (spec.Elastic{MultipleOf: 2}) {
		t.Errorf("got %+v, %v", got.Elastic, err)
	}
	for args, want := range map[string]string{
		"--multiple-of 2":                        "--workers: is 1, must be a multiple of elastic.multipleOf (2): write 2",
		"--multiple-of 2 --workers 2:3":          "--workers: is 3, must be a multiple of elastic.multipleOf (2): write 2 or 4",
		"--multiple-of 4 --min-np 4 --max-np 10": "--max-np: is 10, must be a multiple of elastic.multipleOf (4): write 8 or 12",
		"--multiple-of -1":                       "--multiple-of: is -1, must be 0 or more: 2 allows 2, 4, 6 and so on",
	} {
		_, err := parse(t, strings.Fields(args)...).Spec([]string{"./train"})
		if bad := errcode.FieldErrorsOf(err); len(bad) != 1 || bad[0].String() != want {
			t.Errorf("%s: %v, want %s", args, bad, want)
		}
	}
}

// TestGPU: a flag of its own for any GPU, and each error by the flag that has it.
func TestGPU(t *testing.T) {
	for args, want := range map[string]*spec.GPU{
		"":                                 nil,
		"--gpu any":                        {},
		"--gpu H100":                       {Model: "H100"},
		"--gpu-memory 40GiB":               {Memory: "40GiB"},
		"--gpu=any --gpu-memory=40GB":      {Memory: "40GB"},
		"--gpu A100-80GB --gpu-memory 1GB": {Model: "A100-80GB", Memory: "1GB"},
	} {
		f := parse(t, strings.Fields(args)...)
		got, err := f.Spec([]string{"./train"})
		if err != nil || !reflect.DeepEqual(got.GPU, want) {
			t.Errorf("%q: got %+v, %v", args, got.GPU, err)
		}
	}
	for args, want := range map[string]string{
		"--gpu=":                                 "--gpu: is empty: leave it out, or write --gpu any",
		"--gpu H100 --gpu-memory=":               "--gpu-memory: is empty: leave it out, or write --gpu any",
		"--gpu 2":                                `--gpu: is "2": each worker has one GPU`,
		"--gpu H100:8":                           `--gpu: "H100:8" is no model`,
		"--gpu none":                             `--gpu: is "none": leave gpu out`,
		"--gpu any --gpu-memory 40G":             `--gpu-memory: "40G" is no memory of a GPU: write 80GB`,
		"--gpu any --env CUDA_VISIBLE_DEVICES=0": "--env CUDA_VISIBLE_DEVICES: is given, and gpu too",
	} {
		_, err := parse(t, strings.Fields(args)...).Spec([]string{"./train"})
		if bad := errcode.FieldErrorsOf(err); len(bad) != 1 || !strings.HasPrefix(bad[0].String(), want) {
			t.Errorf("%s: %v, want %s", args, bad, want)
		}
	}
}

// TestHorovodrun: the flags for the number of workers as horovodrun spells them.
func TestHorovodrun(t *testing.T) {
	for args, want := range map[string]spec.Workers{
		"-np 4":                        {Min: 4, Max: 4},
		"-np=4":                        {Min: 4, Max: 4},
		"--num-proc 2 --max-np 8":      {Min: 2, Max: 8},
		"--min-np 2 --max-np 4":        {Min: 2, Max: 4},
		"--min-np 2":                   {Min: 2, Max: 2},
		"--max-np 3":                   {Min: 1, Max: 3},
		"-np 2 --min-np 2 --max-np 4":  {Min: 2, Max: 4},
		"-np 3 --min-np 2 --max-np 4":  {Min: 2, Max: 4}, // with a note
		"-np 4 --min-np 2":             {Min: 2, Max: 4},
		"--workers 2:5 -- train -np 4": {Min: 2, Max: 5},
	} {
		f := parse(t, strings.Fields(args)...)
		got, err := f.Spec([]string{"train"})
		if err != nil || got.Workers != want {
			t.Errorf("%s: got %+v, %v; want %+v", args, got.Workers, err, want)
		}
		if notes := f.Launch().Notes; len(notes) > 0 != (strings.Contains(args, "--min-np") && f.num > want.Min) {
			t.Errorf("%s: notes %q", args, notes)
		}
	}
	for args, want := range map[string]string{"-np 2 --min-np 1 --max-np 4": "as soon as 1 worker fits (--min-np), and grows to 4", "-np 3 --min-np 2 --max-np 4": "as soon as 2 workers fit (--min-np)"} {
		f := parse(t, strings.Fields(args)...)
		if _, err := f.Spec([]string{"train"}); err != nil || len(f.Launch().Notes) != 1 || !strings.Contains(f.Launch().Notes[0], want) {
			t.Errorf("%s: %v, notes %q, want %q", args, err, f.Launch().Notes, want)
		}
	}
	for args, path := range map[string]string{
		"-np 4 --min-np 2 --max-np 3": "--num-proc",
		"-np 1 --min-np 2":            "--num-proc",
		"-np 4 --workers 4":           "--workers",
		"--min-np 4 --max-np 2":       "--max-np",
		"--min-np 0 --max-np 2":       "--min-np",
		"-np 0":                       "--num-proc",
		"--num-proc 3 --max-np 2":     "--max-np",
	} {
		_, err := parse(t, strings.Fields(args)...).Spec([]string{"train"})
		if fs := errcode.FieldErrorsOf(err); len(fs) != 1 || fs[0].Path != path {
			t.Errorf("%s: errors %v, want one about %s", args, fs, path)
		}
	}
}
