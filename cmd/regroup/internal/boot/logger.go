package boot

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
)

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

// Logger creates the configured logger.
func (c Config) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level())); err != nil {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", c.LogLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch c.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("log format %q: use text or json", c.LogFormat)
}
