package boot

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// TestFilesOfTheConnectionAreUsed checks that a missing file is named, without a hint about the
// server, which was not tried.
func TestFilesOfTheConnectionAreUsed(t *testing.T) {
	const missing = "/no/such/file"
	for name, c := range map[string]Config{
		"credentials": {Creds: missing}, "authority": {TLSCA: missing}, "certificate": {TLSCert: missing, TLSKey: missing},
	} {
		c.Server, c.LogFormat, c.Wait = "nats://127.0.0.1:1", "text", 5*time.Second
		_, err := Open(t.Context(), c, "test", nil)
		if events.CodeOf(err) != events.Invalid || !strings.Contains(err.Error(), missing) || strings.Contains(err.Error(), "does it run") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Open(t.Context(), Config{Server: "nats://127.0.0.1:1", LogFormat: "text", Wait: 50 * time.Millisecond}, "test", nil)
	if events.CodeOf(err) != events.Unavailable || !strings.Contains(err.Error(), "does it run") {
		t.Errorf("nobody there: %v", err)
	}
}
