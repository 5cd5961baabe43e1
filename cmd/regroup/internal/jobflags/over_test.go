package jobflags

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// inFile is a job with a field of each kind.
func inFile() spec.Job {
	return spec.Job{
		Version: "v1", Name: "cifar", Command: []string{"python", "train.py"}, Workers: spec.Workers{Min: 2, Max: 4}, Recovery: spec.RecoveryInProcess,
		Env: map[string]string{"LR": "1", "SEED": "2"}, GPU: &spec.GPU{Model: "H100", Memory: "80GB"},
		Failures: spec.Failures{Max: new(3), SameStep: 5}, Stop: spec.Stop{Grace: spec.Duration(time.Minute)},
	}
}

// TestOver: each flag changes its field, and nothing else.
func TestOver(t *testing.T) {
	for args, change := range map[string]func(*spec.Job){
		"":                           func(*spec.Job) {},
		"--name lr-1 --env LR=0.1":   func(s *spec.Job) { s.Name, s.Env["LR"] = "lr-1", "0.1" },
		"--env NEW=x=y":              func(s *spec.Job) { s.Env["NEW"] = "x=y" },
		"--secret TOKEN=env:TOKEN":   func(s *spec.Job) { s.Secrets = map[string]string{"TOKEN": "env:TOKEN"} },
		"--workers 3":                func(s *spec.Job) { s.Workers = spec.Workers{Min: 3, Max: 3} },
		"--min-np 1 --max-np 6":      func(s *spec.Job) { s.Workers = spec.Workers{Min: 1, Max: 6} },
		"--max-restarts 0":           func(s *spec.Job) { s.Failures.Max = new(int) },
		"--max-restarts-per 10m":     func(s *spec.Job) { s.Failures.Per = spec.Duration(10 * time.Minute) },
		"--recovery restart":         func(s *spec.Job) { s.Recovery = spec.RecoveryRestart },
		"--gpu any":                  func(s *spec.Job) { s.GPU.Model = "" },
		"--gpu A100":                 func(s *spec.Job) { s.GPU.Model = "A100" },
		"--gpu-memory 40GB":          func(s *spec.Job) { s.GPU.Memory = "40GB" },
		"--stop-grace 5s --spares 1": func(s *spec.Job) { s.Stop.Grace, s.Processes.Spares = spec.Duration(5*time.Second), 1 },
		"--preload a,b --spares 1 --workdir /data": func(s *spec.Job) {
			s.Processes.Preload, s.Processes.Spares, s.Workdir = []string{"a", "b"}, 1, "/data"
		},
		"--hang 5m --multiple-of 2": func(s *spec.Job) { s.Health.Hang, s.Elastic.MultipleOf = spec.Duration(5*time.Minute), 2 },
	} {
		got, err := parse(t, strings.Fields(args)...).Over(inFile())
		want := inFile()
		change(&want)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v\ngot  %+v\nwant %+v", args, err, got, want)
		}
	}
	for args, want := range map[string]string{
		"--name No":             "--name",
		"--workers two":         "--workers",
		"--workers 4:2":         "--workers",
		"--env A":               "--env",
		"--multiple-of 3":       "workers.max",
		"--nnodes 2":            "--nnodes",
		"-j 2x2":                "--j",
		"--rdzv-backend c10d":   "--rdzv-backend",
		"--max-restarts-per 0s": "--max-restarts-per",
	} {
		_, err := parse(t, strings.Fields(args)...).Over(inFile())
		found := errcode.FieldErrorsOf(err)
		if len(found) == 0 || !strings.HasPrefix(found[0].Path, want) && !strings.HasPrefix(found[len(found)-1].Path, want) {
			t.Errorf("%q: %v, want one about %s", args, found, want)
		}
	}
}
