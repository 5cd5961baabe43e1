package jobflags

import (
	"testing"

	"github.com/regroup-io/regroup/events/spec"
)

// FuzzReadConf: torchrun's --rdzv-conf with any text: each error has a message, and without one
// every time is positive.
func FuzzReadConf(f *testing.F) {
	f.Add("join_timeout=60,last_call_timeout=30")
	f.Add("join_timeout=1e400,close_timeout=-1,is_host=true")
	f.Add("keep_alive_max_attempt=0,,=,x")
	f.Fuzz(func(t *testing.T, text string) {
		r := spec.Rendezvous{}
		bad := ReadConf(text, &r)
		for _, b := range bad {
			if b.Message == "" {
				t.Fatalf("%q: empty error in %v", text, bad)
			}
		}
		for _, d := range []spec.Duration{r.JoinTimeout, r.LastCallTimeout, r.CloseTimeout, r.KeepAliveInterval, r.HeartbeatTimeout} {
			if d < 0 {
				t.Fatalf("%q: %+v", text, r)
			}
		}
	})
}
