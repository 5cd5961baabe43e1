package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/collective"
)

// Options say how a worker reaches its agent and its peers. The zero value means: alone, without an agent, world size 1.
type Options struct {
	Job    string // id of the job
	Socket string // path of the agent's Unix socket; empty = stand-alone
	Token  string // names this worker to its agent

	// Transport receives the connections of peers; nil = TCP on Host, with a port within PortMin to PortMax (zero = any).
	// Run closes it.
	Transport        collective.Transport
	Host             string
	PortMin, PortMax int

	// BuildWithin bounds connecting to the members of a new generation; zero = 20 s. Too small: slow machines never get
	// together; too large: a member that died in between is noticed late.
	BuildWithin time.Duration
	// StallAfter is passed to the communicator: how long a peer may be silent; zero = its default.
	StallAfter time.Duration
	// OrphanAfter is how long the agent may be silent while training goes on; zero = 35 s. Then Run fails: its agent is dead or
	// frozen, the others have gone on without this node, and its place may be worked at elsewhere. An agent that lives answers every 25 s, whether
	// it has a control plane or not.
	OrphanAfter time.Duration
	// Patience is how long the agent may be unreachable before Run gives up; zero = 60 s. Training goes on meanwhile;
	// it counts only where the agent is needed: to join and to say done.
	Patience time.Duration

	// WarmWithin bounds how long a newcomer fetches the state of a running job aside, before it comes in with what it has and
	// the others wait for the rest; zero = 60 s. Too small: large states are fetched while training pauses; too large: a
	// newcomer that no holder answers comes in late. Negative = not at all.
	WarmWithin time.Duration

	Checkpoint Checkpoint // commits on disk; zero = none

	// Prepare, if set, registers the state, which may be empty before: with the world known, and other ranks to talk to. It is called in the
	// first generation, before anything is in sync, and again in the next one when it ends with an error that regrouping can mend; once it
	// has returned nil never again. A worker that comes to a running job is asked aside, see Stage. What Prepare does with others
	// belongs into Prologue. It must return when ctx ends.
	Prepare func(ctx context.Context, s *Session) error
	// Prologue is what was done before the state was registered; nil = nothing.
	Prologue *Prologue

	// Finish, if set, is called after the training function has returned nil on all ranks and the job knows: the communicator of s still
	// works, as far as others have not left. Run returns after it.
	Finish func(ctx context.Context, s *Session)

	// OnPreempt is called when the agent says that this worker's node will be taken away, beside the training function: it must not
	// touch the state. ctx ends with the notice's time, if that is known, and with Run, which waits for it to return. nil = nothing beside
	// what is always done: a commit at the next step for which CommitDue is asked, a checkpoint of it if there are any, and a
	// planned change if something can take this worker's place.
	OnPreempt func(ctx context.Context, n Notice)

	Log *slog.Logger // of regroupings; nil = none
}

// FromEnv returns the options that the agent has put into the environment (REGROUP_SOCKET and others). Outside of
// Regroup they are those of a stand-alone run.
func FromEnv() (Options, error) {
	o := Options{
		Job:    os.Getenv(wire.EnvJob),
		Socket: os.Getenv(wire.EnvSocket),
		Token:  os.Getenv(wire.EnvToken),
		Host:   os.Getenv(wire.EnvAdvertise),
	}
	level := slog.LevelWarn // who trains wants to see the program's output, and what went wrong
	if name := os.Getenv(wire.EnvLogLevel); name != "" {
		if err := level.UnmarshalText([]byte(name)); err != nil {
			return Options{}, fmt.Errorf("%s=%q: use debug, info, warn or error", wire.EnvLogLevel, name)
		}
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if within := os.Getenv(wire.EnvWarmWithin); within != "" {
		d, err := time.ParseDuration(within)
		if err != nil {
			return Options{}, fmt.Errorf("%s: %w", wire.EnvWarmWithin, err)
		}
		o.WarmWithin = d
	}
	if err := o.Checkpoint.fromEnv(); err != nil {
		return Options{}, err
	}
	ports := os.Getenv(wire.EnvDataPorts)
	if ports == "" {
		return o, nil
	}
	low, high, ranged := strings.Cut(ports, "-")
	if !ranged {
		high = low
	}
	var errLow, errHigh error
	o.PortMin, errLow = strconv.Atoi(low)
	o.PortMax, errHigh = strconv.Atoi(high)
	if errLow != nil || errHigh != nil {
		return Options{}, fmt.Errorf("%s=%q is not low-high", wire.EnvDataPorts, ports)
	}
	return o, nil
}

func (o *Options) complete() error {
	if o.Socket != "" && o.Job == "" {
		return errors.New("elastic: Options.Job is empty")
	}
	o.Job = cmp.Or(o.Job, "alone")
	o.BuildWithin = cmp.Or(o.BuildWithin, 20*time.Second)
	o.WarmWithin = cmp.Or(o.WarmWithin, time.Minute)
	o.Patience = cmp.Or(o.Patience, time.Minute)
	o.OrphanAfter = cmp.Or(o.OrphanAfter, 35*time.Second)
	o.Checkpoint.Every = cmp.Or(o.Checkpoint.Every, 10*time.Minute)
	o.Checkpoint.Keep = cmp.Or(o.Checkpoint.Keep, 3)
	if o.BuildWithin < 0 || o.Patience < 0 || o.OrphanAfter < 0 || o.Checkpoint.Every < 0 {
		return errors.New("elastic: a negative duration in Options")
	}
	if o.Prologue == nil {
		o.Prologue = new(Prologue)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
