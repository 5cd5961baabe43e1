package server_test

import (
	"testing"

	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

func TestMain(m *testing.M) { jetstreamtest.Main(m) }
