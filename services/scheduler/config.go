package scheduler

// Config is what people may set: nothing yet. The rules are fixed, see package plan.
type Config struct{}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return Config{} }

// Validate returns everything that is wrong, joined.
func (c Config) Validate() error { return nil }
