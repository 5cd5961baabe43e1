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

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Options say how a worker reaches its agent and its peers. The zero value means: without an agent,
// with a world size of 1.
type Options struct {
	Job    string // id of the job
	Socket string // path of the agent's Unix socket; empty = stand-alone
	Token  string // identifies this worker to its agent
	// Traceparent is the W3C trace context of this process, for Session.Traceparent where the agent
	// names none.
	Traceparent string

	// Transport accepts the connections of peers; nil = TCP on Host, with a port within PortMin to
	// PortMax (zero = any). Run closes it.
	Transport        collective.Transport
	Host             string
	PortMin, PortMax int
	// Encrypt has what members send each other encrypted, see collective.NewEncryptedEndpoint. All
	// members must agree on it.
	Encrypt bool

	// ConnectTimeout bounds connecting to the members of a new generation; zero = 20 s. Too small:
	// slow machines never connect; too large: a member that died meanwhile is noticed late.
	ConnectTimeout time.Duration
	// StallAfter is passed to the communicator: how long a peer may be silent; zero = its default.
	StallAfter time.Duration
	// OrphanTimeout is how long the agent may be silent while training goes on; zero = 35 s. Then
	// Run fails: the agent is dead or frozen, the others have continued without this node, and its
	// work may have been given to another worker. A living agent answers every 25 s, whether it
	// reaches the control plane or not.
	OrphanTimeout time.Duration
	// AgentTimeout is how long the agent may be unreachable before Run gives up; zero = 60 s. It
	// only matters where the agent is needed: to join, and to report that the training is done.
	AgentTimeout time.Duration

	// PrefetchTimeout bounds how long a newcomer fetches the state of a running job before it joins
	// with what it has, and the others wait for the rest; zero = 60 s. Too small: large states are
	// fetched while training pauses; too large: a newcomer to which no holder answers joins late.
	// Negative = no prefetch.
	PrefetchTimeout time.Duration

	Checkpoint Checkpoint // commits on disk; zero = none

	// Prepare, if set, registers the state, which may be empty before, when the world is known and
	// other ranks can be talked to. It is called in the first generation, before the sync, and
	// again in the next one if it returns an error that regrouping helps against; never again after
	// it has returned nil. A newcomer to a running job calls it before it is a member, see Stage.
	// The results of what Prepare does with others belong into Prologue. It must return when ctx
	// ends.
	Prepare func(ctx context.Context, s *Session) error
	// Prologue is what the ranks did before the state was registered; nil = nothing.
	Prologue *Prologue

	// Finish, if set, is called after the training function has returned nil on all ranks and the
	// job knows. The communicator of s still works with the members that have not left. Run returns
	// after it.
	Finish func(ctx context.Context, s *Session)

	// OnPreempt is called when the agent says that this worker's node will be taken away, while the
	// training function runs: it must not touch the state. ctx ends at the time in the notice, if
	// that is known, and with Run, which waits for OnPreempt to return. nil = only what always
	// happens: a commit at the next step for which CommitDue is asked, a checkpoint of it if
	// checkpoints are written, and a planned change if something can take this worker's place.
	OnPreempt func(ctx context.Context, n PreemptionNotice)

	Log *slog.Logger // nil = none
}

// FromEnv returns the options that the agent has put into the environment (REGROUP_SOCKET and
// others). Outside of Regroup they are those of a stand-alone run.
func FromEnv() (Options, error) {
	o := Options{
		Job:    os.Getenv(workerprotocol.EnvJob),
		Socket: os.Getenv(workerprotocol.EnvSocket),
		Token:  os.Getenv(workerprotocol.EnvToken),
		Host:   os.Getenv(workerprotocol.EnvAdvertise),

		Traceparent: os.Getenv(workerprotocol.EnvTraceparent),
	}
	if err := parseEnv(workerprotocol.EnvEncrypt, &o.Encrypt, strconv.ParseBool); err != nil {
		return Options{}, err
	}
	level := slog.LevelWarn // training output should not drown in logs
	if name := os.Getenv(workerprotocol.EnvLogLevel); name != "" {
		if err := level.UnmarshalText([]byte(name)); err != nil {
			return Options{}, fmt.Errorf("%s=%q: use debug, info, warn or error", workerprotocol.EnvLogLevel, name)
		}
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if err := parseEnv(workerprotocol.EnvPrefetchWithin, &o.PrefetchTimeout, time.ParseDuration); err != nil {
		return Options{}, err
	}
	if err := o.Checkpoint.fromEnv(); err != nil {
		return Options{}, err
	}
	ports := os.Getenv(workerprotocol.EnvDataPorts)
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
		return Options{}, fmt.Errorf("%s=%q is not low-high", workerprotocol.EnvDataPorts, ports)
	}
	return o, nil
}

// parseEnv sets a value from an environment variable, unless that is empty.
func parseEnv[T any](name string, to *T, parse func(string) (T, error)) (err error) {
	if text := os.Getenv(name); text != "" {
		if *to, err = parse(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (o *Options) complete() error {
	if o.Socket != "" && o.Job == "" {
		return errors.New("elastic: Options.Job is empty")
	}
	o.Job = cmp.Or(o.Job, "alone")
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 20*time.Second)
	o.PrefetchTimeout = cmp.Or(o.PrefetchTimeout, time.Minute)
	o.AgentTimeout = cmp.Or(o.AgentTimeout, time.Minute)
	o.OrphanTimeout = cmp.Or(o.OrphanTimeout, 35*time.Second)
	o.Checkpoint.complete()
	if o.ConnectTimeout < 0 || o.AgentTimeout < 0 || o.OrphanTimeout < 0 || o.Checkpoint.Every < 0 {
		return errors.New("elastic: a negative duration in Options")
	}
	o.Prologue = cmp.Or(o.Prologue, new(Prologue))
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return nil
}
