package boot

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/kelseyhightower/envconfig"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/jetstream"
)

// Prefix of all environment variables that configure Regroup.
const Prefix = "regroup"

// Config is the configuration that all commands share. Its values come from REGROUP_* variables;
// flags of the same names override them.
type Config struct {
	Server    string        `envconfig:"SERVER" desc:"NATS URLs of the cluster, separated by commas; empty = the server that runs on this machine, or one of its own"`
	Creds     string        `envconfig:"CREDS" desc:"path of a NATS credentials file; empty = none"`
	TLSCA     string        `envconfig:"TLSCA" desc:"path of a PEM file to verify the server with; empty = the system's"`
	TLSCert   string        `envconfig:"TLSCERT" desc:"path of a PEM file to show the server, together with the key; empty = none"`
	TLSKey    string        `envconfig:"TLSKEY" desc:"path of the key of that certificate"`
	Auth      string        `envconfig:"AUTH" desc:"directory made by regroup auth init: brokers admit its users, others take their credentials and certificates from it"`
	Secret    string        `envconfig:"SECRET" desc:"shared by the servers of up, run and torchrun and those who connect to them; empty = a random one, which other machines do not know, and none for the nodes of a torchrun"`
	System    System        `envconfig:"NATS_SYSTEM"` // reports closed connections of agents to discovery
	StateDir  string        `envconfig:"STATE_DIR" desc:"folder for data that outlives the process; empty = regroup in $XDG_STATE_HOME or ~/.local/state"`
	LogLevel  string        `envconfig:"LOG_LEVEL" desc:"debug, info, warn or error; empty = info for services and agents, else warn"`
	LogFormat string        `envconfig:"LOG_FORMAT" default:"text" desc:"text or json"`
	Health    string        `envconfig:"HEALTH" desc:"host:port that answers /healthz and /readyz; empty = none"`
	Wait      time.Duration `envconfig:"WAIT_FOR_SERVER" default:"1m" desc:"how long a service waits for NATS and its streams at its start"`
	Verbose   int           `ignored:"true"` // -v: log more, unless LogLevel is set; 1 = info, 2 = debug
	Version   string        `ignored:"true"` // of this program
}

// System is access to the system account of NATS: REGROUP_NATS_SYSTEM_*. `serve nats` creates this
// user. Without it, missed heartbeats are the only sign of a lost agent.
type System struct {
	URL         string `envconfig:"URL" desc:"NATS URL of the system account; empty = the server's"`
	User        string `envconfig:"USER" desc:"its user; empty with a password = regroup-system"`
	Password    string `envconfig:"PASSWORD" desc:"password of that user; serve nats makes the user"`
	Credentials string `envconfig:"CREDENTIALS" desc:"path of a NATS credentials file, instead of the user"`
}

// Server returns the options, which are the same for a server and its clients.
func (s System) Server() jetstream.System {
	user := s.User
	if user == "" && s.Password != "" {
		user = jetstream.SystemUser
	}
	return jetstream.System{URL: s.URL, User: user, Password: s.Password, Credentials: s.Credentials}
}

// Load reads the environment.
func Load() (Config, error) {
	var c Config
	if err := envconfig.Process(Prefix, &c); err != nil {
		return c, fmt.Errorf("environment: %w", err)
	}
	if c.StateDir == "" {
		c.StateDir = client.DefaultStateDir()
	}
	return c, nil
}

// Section reads the configuration of one service from the environment: REGROUP_<NAME>_*.
func Section(name string, into any) error {
	if err := envconfig.Process(Prefix+"_"+name, into); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	return nil
}

// Flags adds the shared flags; their defaults are the values that Load has read.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVarP(&c.Server, "server", "s", c.Server, "NATS URL of the cluster (REGROUP_SERVER)")
	fs.StringVar(&c.Creds, "creds", c.Creds, "NATS credentials `FILE` (REGROUP_CREDS)")
	fs.StringVar(&c.TLSCA, "tlsca", c.TLSCA, "PEM `FILE` to verify the server with (REGROUP_TLSCA)")
	fs.StringVar(&c.TLSCert, "tlscert", c.TLSCert, "PEM `FILE` with the certificate to show the server (REGROUP_TLSCERT)")
	fs.StringVar(&c.TLSKey, "tlskey", c.TLSKey, "PEM `FILE` with the key of --tlscert (REGROUP_TLSKEY)")
	fs.StringVar(&c.Auth, "auth", c.Auth, "`DIR` of regroup auth, for brokers and for those who connect to them (REGROUP_AUTH)")
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "folder for data that outlives the process (REGROUP_STATE_DIR; default: regroup in $XDG_STATE_HOME or ~/.local/state)")
	fs.Lookup("state-dir").DefValue = "" // the help text does not depend on the environment
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error (REGROUP_LOG_LEVEL); default: info for serve and agent, else warn")
	fs.CountVarP(&c.Verbose, "verbose", "v", "log what happens, of workers too; -vv in detail")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json (REGROUP_LOG_FORMAT)")
	fs.StringVar(&c.Health, "health", c.Health, "host:port that answers /healthz and /readyz (REGROUP_HEALTH)")
}

// Level is the minimum log level: from the configuration, else from -v, else warn.
func (c Config) Level() string {
	return cmp.Or(c.LogLevel, []string{"warn", "info", "debug"}[min(c.Verbose, 2)])
}

// Service returns the configuration of a service, whose default level is info.
func (c Config) Service() Config {
	if c.LogLevel == "" && c.Verbose == 0 {
		c.LogLevel = "info"
	}
	return c
}

// Logger creates the configured logger. Its lines have the ids of the trace of their context.
func (c Config) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level())); err != nil {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", c.LogLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch c.LogFormat {
	case "text":
		return slog.New(traceHandler{slog.NewTextHandler(w, o)}), nil
	case "json":
		return slog.New(traceHandler{slog.NewJSONHandler(w, o)}), nil
	}
	return nil, fmt.Errorf("log format %q: use text or json", c.LogFormat)
}
