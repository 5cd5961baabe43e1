package registry

// Config is the configuration of the service. The registry has none: budgets, graces and limits
// belong to the job's spec.
type Config struct{}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config { return Config{} }

// Validate returns all errors of the configuration.
func (Config) Validate() error { return nil }
