package boot

import (
	"bytes"
	"log/slog"
	"testing"
)

// TestLevels checks the default levels of user commands (warn) and services (info), and explicit
// ones.
func TestLevels(t *testing.T) {
	for _, c := range []struct {
		config        Config
		user, service slog.Level
	}{
		{Config{}, slog.LevelWarn, slog.LevelInfo},
		{Config{Verbose: 1}, slog.LevelInfo, slog.LevelInfo},
		{Config{Verbose: 3}, slog.LevelDebug, slog.LevelDebug},
		{Config{LogLevel: "error", Verbose: 1}, slog.LevelError, slog.LevelError},
	} {
		c.config.LogFormat = "text"
		for _, x := range []struct {
			Config
			least slog.Level
		}{{c.config, c.user}, {c.config.Service(), c.service}} {
			l, err := x.Logger(new(bytes.Buffer))
			if err != nil || !l.Enabled(t.Context(), x.least) || l.Enabled(t.Context(), x.least-1) {
				t.Errorf("%+v: not from %s on, %v", x.Config, x.least, err)
			}
		}
	}
	if _, err := (Config{LogLevel: "loud", LogFormat: "text"}).Logger(nil); err == nil {
		t.Error("an unknown level is taken")
	}
}
