package server

import (
	"log/slog"
	"net"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
)

// TestAnAddressInUse: the error comes at once, and says that another process listens there.
func TestAnAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Start(Options{StoreDir: t.TempDir(), Listen: l.Addr().String(), Logger: slog.New(slog.DiscardHandler)})
	if errcode.Of(err) != errcode.Conflict {
		t.Errorf("%v, want a conflict", err)
	}
}
