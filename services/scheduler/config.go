package scheduler

// Config is the configuration of the service. It has none: the rules are fixed, see package plan.
type Config struct{}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config { return Config{} }

// Validate returns all errors of the configuration.
func (c Config) Validate() error { return nil }
