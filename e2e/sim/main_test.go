package sim

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the collector run less often: a run's memory is small, and a fifth of the time
// would go into it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1000)
	os.Exit(m.Run())
}
