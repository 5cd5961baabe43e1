package registry

// Config is what people may set. The registry has nothing of its own: budgets, graces and limits
// belong to the job's spec.
type Config struct{}

// DefaultConfig returns what holds if nothing is set.
func DefaultConfig() Config { return Config{} }

// Validate returns everything that is wrong with it.
func (Config) Validate() error { return nil }
