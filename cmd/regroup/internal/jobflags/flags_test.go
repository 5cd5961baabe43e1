package jobflags

import (
	"reflect"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/events"
)

func parse(t *testing.T, args ...string) *Flags {
	t.Helper()
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f := Add(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSpec(t *testing.T) {
	f := parse(t, "--name", "cifar", "--workers", "2:4", "--recovery", "in-process", "--max-restarts", "0", "--env", "A=1", "--env", "B=x=y",
		"--workdir", "/data", "--samples", "60000", "--stop-grace", "5s")
	got, err := f.Spec([]string{"python", "train.py"})
	if err != nil {
		t.Fatal(err)
	}
	want := events.Spec{
		Name: "cifar", Command: []string{"python", "train.py"}, Workdir: "/data", Env: map[string]string{"A": "1", "B": "x=y"},
		Workers: events.Workers{Min: 2, Max: 4}, Recovery: events.RecoveryInProcess, Failures: events.Failures{Max: new(int)},
		Stop: events.Stop{Grace: events.Duration(5 * time.Second)}, Data: events.Data{Samples: 60000},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if f.Given() == "" {
		t.Error("no flag counts as given")
	}
}

func TestDefaults(t *testing.T) {
	f := parse(t)
	got, err := f.Spec([]string{"./train"})
	if err != nil {
		t.Fatal(err)
	}
	if want := (events.Spec{Name: "train", Command: []string{"./train"}, Workers: events.Workers{Min: 1, Max: 1}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if g := f.Given(); g != "" {
		t.Errorf("%s counts as given", g)
	}
}

// TestEveryFindingAtOnce: and each by the name of its flag.
func TestEveryFindingAtOnce(t *testing.T) {
	f := parse(t, "--name", "No", "--workers", "two", "--recovery", "maybe", "--max-restarts", "-1", "--env", "A", "--env", "RANK=1", "--stop-grace", "-1s")
	_, err := f.Spec(nil)
	if events.CodeOf(err) != events.Invalid {
		t.Fatalf("got %v, want Invalid", err)
	}
	got := map[string]bool{}
	for _, x := range events.FindingsOf(err) {
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
	if fs := events.FindingsOf(err); len(fs) != 1 || fs[0].Path != "--workers" {
		t.Errorf("4:2 gives %v", err)
	}
}

func TestNameOf(t *testing.T) {
	for want, args := range map[string][]string{
		"train":    {"python", "-u", "train.py", "--epochs", "10"},
		"my-train": {"/opt/bin/My_Train.sh"},
		"python":   {"python"},
		"python3":  {"python3", "-u", "-c", "import torch; print(1)"},
		"bash":     {"bash", "-lc", "exec train"},
		"job":      nil,
		"x":        {"/usr/bin/env", "x"},
	} {
		if got := NameOf(args); got != want {
			t.Errorf("NameOf(%q) = %q, want %q", args, got, want)
		}
	}
}
