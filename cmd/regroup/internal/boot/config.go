package boot

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
	"github.com/spf13/pflag"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/jetstream/server"
)

// Prefix of all environment variables that configure Regroup.
const Prefix = "regroup"

// Config is the configuration that all commands share. Its values come from REGROUP_* variables;
// flags of the same names override them.
type Config struct {
	Server    string        `envconfig:"SERVER" flag:"server,s" usage:"NATS URL of the cluster (%)" desc:"NATS URLs of the cluster, separated by commas; empty = the server that runs on this machine, or one of its own"`
	Creds     string        `envconfig:"CREDS" flag:"creds" usage:"NATS credentials 'FILE' (%)" desc:"path of a NATS credentials file; empty = none"`
	TLSCA     string        `envconfig:"TLSCA" flag:"tlsca" usage:"PEM 'FILE' to verify the server with (%)" desc:"path of a PEM file to verify the server with; empty = the system's"`
	TLSCert   string        `envconfig:"TLSCERT" flag:"tlscert" usage:"PEM 'FILE' with the certificate to show the server (%)" desc:"path of a PEM file to show the server, together with the key; empty = none"`
	TLSKey    string        `envconfig:"TLSKEY" flag:"tlskey" usage:"PEM 'FILE' with the key of --tlscert (%)" desc:"path of the key of that certificate"`
	Auth      string        `envconfig:"AUTH" flag:"auth" usage:"'DIR' of regroup auth, for brokers and for those who connect to them (%)" desc:"directory made by regroup auth init: brokers admit its users, others take their credentials and certificates from it"`
	Secret    string        `envconfig:"SECRET" desc:"shared by the servers of up, run and torchrun and those who connect to them; empty = a random one, which other machines do not know, and none for the nodes of a torchrun"`
	System    System        `envconfig:"NATS_SYSTEM"` // reports closed connections of agents to discovery
	StateDir  string        `envconfig:"STATE_DIR" flag:"state-dir" usage:"folder for data that outlives the process (%; default: regroup in $XDG_STATE_HOME or ~/.local/state)" desc:"folder for data that outlives the process; empty = regroup in $XDG_STATE_HOME or ~/.local/state"`
	LogLevel  string        `envconfig:"LOG_LEVEL" flag:"log-level" usage:"debug, info, warn or error (%); default: info for serve and agent, else warn" desc:"debug, info, warn or error; empty = info for services and agents, else warn"`
	LogFormat string        `envconfig:"LOG_FORMAT" flag:"log-format" usage:"text or json (%)" default:"text" desc:"text or json"`
	Health    string        `envconfig:"HEALTH" flag:"health" usage:"host:port that answers /healthz and /readyz (%)" desc:"host:port that answers /healthz and /readyz; empty = none"`
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
func (s System) Server() server.System {
	user := s.User
	if user == "" && s.Password != "" {
		user = server.SystemUser
	}
	return server.System{URL: s.URL, User: user, Password: s.Password, Credentials: s.Credentials}
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
	Flags(fs, "", c)
	fs.Lookup("state-dir").DefValue = "" // the help text does not depend on the environment
	fs.CountVarP(&c.Verbose, "verbose", "v", "log what happens, of workers too; -vv in detail")
}

// Flags adds the flags of the configuration of one service, or of all with "". The fields have them
// beside their variables:
//
//	Listen string `envconfig:"LISTEN" flag:"listen" usage:"'ADDRESS' to listen at (%)"`
//
// is --listen ADDRESS, and its usage ends with (REGROUP_GATEWAY_LISTEN).
func Flags(fs *pflag.FlagSet, section string, config any) {
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name, short, _ := strings.Cut(tag.Get("flag"), ",")
		if v.Type().Field(i).Anonymous {
			Flags(fs, section, v.Field(i).Addr().Interface())
		}
		if name == "" {
			continue
		}
		variable := strings.ToUpper(strings.Join(slices.DeleteFunc([]string{Prefix, section, tag.Get("envconfig")}, func(s string) bool { return s == "" }), "_"))
		usage := placeholder.ReplaceAllString(strings.ReplaceAll(tag.Get("usage"), "%", variable), "`$1`")
		switch p := v.Field(i).Addr().Interface().(type) {
		case *string:
			fs.StringVarP(p, name, short, *p, usage)
		case *int:
			fs.IntVarP(p, name, short, *p, usage)
		case *int64:
			fs.Int64VarP(p, name, short, *p, usage)
		case *bool:
			fs.BoolVarP(p, name, short, *p, usage)
		case *time.Duration:
			fs.DurationVarP(p, name, short, *p, usage)
		case *[]string:
			fs.StringSliceVarP(p, name, short, *p, usage)
		}
	}
}

// placeholder is the name of a value in a usage, which is in back quotes for pflag.
var placeholder = regexp.MustCompile(`'([A-Z]+)'`)

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
