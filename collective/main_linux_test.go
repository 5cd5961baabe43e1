package collective

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if runAsRank() {
		return
	}
	goleak.VerifyTestMain(m)
}
