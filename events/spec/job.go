// Package spec defines the job specification: its types, their defaults, its validation with an
// error for each field, and the environment variables of workers. docs/jobfile.md is generated from
// it.
package spec

import (
	"fmt"
	"time"
)

// Recovery is how a job's workers survive a fault.
type Recovery string

// Ways to run a worker.
const (
	// RecoveryRestart: any program. Each generation is a new set of processes with torchrun's
	// environment.
	RecoveryRestart Recovery = "restart"
	// RecoveryInProcess: programs that use the Regroup SDK. Survivors keep running.
	RecoveryInProcess Recovery = "in-process"
)

// Duration is a time span written as text, as time.ParseDuration reads it: 500ms, 30s, 1h.
type Duration time.Duration

// D returns the duration as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// MarshalText writes 30s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads 30s.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write 500ms, 30s or 1h", b)
	}
	*d = Duration(v)
	return nil
}

// Job is what a user submits. Zero values mean the defaults that WithDefaults fills in.
type Job struct {
	Version  string            `json:"version,omitempty"` // "v1"
	Name     string            `json:"name"`              // RFC 1123 label of at most 58 characters
	Command  []string          `json:"command"`           // program and arguments, present on every node
	Workdir  string            `json:"workdir,omitempty"` // absolute; empty = the agent's own
	Env      map[string]string `json:"env,omitempty"`
	Workers  Workers           `json:"workers"`
	Recovery Recovery          `json:"recovery,omitempty"` // default restart
	Failures Failures          `json:"failures"`
	Elastic  Elastic           `json:"elastic"`
	Health   Health            `json:"health,omitzero"`
	Stop     Stop              `json:"stop"`
	Data     Data              `json:"data"`
	Labels   map[string]string `json:"labels,omitempty"`

	Rendezvous *Rendezvous `json:"rendezvous,omitempty"` // only for jobs with self-registered nodes
}

// Workers is the wanted number of workers of a job.
type Workers struct {
	Min int `json:"min"` // below this the job waits; at least 1
	Max int `json:"max"` // never more; at least Min
}

// Failures is the failure budget of the whole job (torchrun's --max-restarts is per agent): more
// than Max failures within Per end it, and so do SameStep failures at one committed step, whatever
// the time between them. Planned changes never count.
type Failures struct {
	Max *int     `json:"max,omitempty"` // default 20; 0 = the first failure ends the job
	Per Duration `json:"per,omitempty"` // default 1h
	// This many consecutive failures at one step end the job: the data or the code causes them;
	// default 3.
	SameStep int `json:"sameStep,omitempty"`
}

// Elastic holds the times of the rendezvous.
type Elastic struct {
	LastCall     Duration `json:"lastCall,omitempty"`     // wait for further members once min is reached; default 30s
	RejoinWithin Duration `json:"rejoinWithin,omitempty"` // time for an accused member to rejoin; default 500ms
	// A first generation that has places and is not sealed after this fails the job; default 10m.
	StartWithin Duration `json:"startWithin,omitempty"`
	// A job that has run and is below min for this long fails; default 10m, as Horovod's
	// --elastic-timeout.
	Timeout Duration `json:"timeout,omitempty"`
	// Growing waits this long for others that arrive at the same time; default 200ms.
	Settle Duration `json:"settle,omitempty"`
	// Generations after the first, planned ones included as Horovod's --reset-limit counts them;
	// default no limit, 0 = none.
	ResetLimit *int `json:"resetLimit,omitempty"`
}

// Health configures when running workers count as hung.
type Health struct {
	// Hang is how long the job may make no step; 0 = for ever. It must be longer than the longest
	// pause of a healthy job (evaluation, checkpoint, compilation): ten times the longest step, and
	// at least 5m, is a good value.
	Hang Duration `json:"hang,omitempty"`
}

// Stop is how workers are stopped.
type Stop struct {
	Signal string   `json:"signal,omitempty"` // default SIGTERM
	Grace  Duration `json:"grace,omitempty"`  // then SIGKILL; default 30s
}

// Data describes the data set for the ledger.
type Data struct {
	Samples uint64 `json:"samples,omitempty"` // samples of one epoch; 0 = as the workers report
}

// WithDefaults returns the spec with every default filled in.
func (s Job) WithDefaults() Job {
	if s.Version == "" {
		s.Version = "v1"
	}
	if s.Recovery == "" {
		s.Recovery = RecoveryRestart
	}
	if s.Rendezvous != nil {
		s.Rendezvous = s.Rendezvous.withDefaults()
		if s.Workers == (Workers{}) {
			s.Workers = s.Rendezvous.workers()
		}
	}
	if s.Failures.Max == nil {
		s.Failures.Max = new(int)
		*s.Failures.Max = 20
	}
	if s.Failures.SameStep == 0 {
		s.Failures.SameStep = 3
	}
	fill := func(d *Duration, v time.Duration) {
		if *d == 0 {
			*d = Duration(v)
		}
	}
	fill(&s.Failures.Per, time.Hour)
	fill(&s.Elastic.LastCall, 30*time.Second)
	fill(&s.Elastic.RejoinWithin, 500*time.Millisecond)
	fill(&s.Elastic.StartWithin, 10*time.Minute)
	fill(&s.Elastic.Timeout, 10*time.Minute)
	fill(&s.Elastic.Settle, 200*time.Millisecond)
	fill(&s.Stop.Grace, 30*time.Second)
	if s.Stop.Signal == "" {
		s.Stop.Signal = "SIGTERM"
	}
	return s
}
