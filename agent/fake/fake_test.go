package fake

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/agent/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCommands(t *testing.T) {
	for command, want := range map[string]struct {
		x     worker.ProcessExited
		after time.Duration
	}{
		"fake run=2s exit=7":                {worker.ProcessExited{ExitCode: 7}, 2 * time.Second},
		"fake run=1s":                       {worker.ProcessExited{}, time.Second},
		"fake run=1s signal=SIGSEGV":        {worker.ProcessExited{ExitCode: -1, Signal: "SIGSEGV", Number: 11}, time.Second},
		"fake run=3s oom":                   {worker.ProcessExited{ExitCode: -1, Signal: "SIGKILL", Number: 9, OOM: true}, 3 * time.Second},
		"fake":                              {worker.ProcessExited{ExitCode: -1, Signal: "SIGTERM", Number: 15}, 5 * time.Second},
		"fake ignore-term":                  {worker.ProcessExited{ExitCode: -1, Signal: "SIGKILL", Number: 9}, 9 * time.Second},
		"fake run=7s exit=2 ignore-term":    {worker.ProcessExited{ExitCode: 2}, 7 * time.Second},
		"fake run=1m exit=2 ignore-term":    {worker.ProcessExited{ExitCode: -1, Signal: "SIGKILL", Number: 9}, 9 * time.Second},
		"fake run=1s exit=3 lines=2":        {worker.ProcessExited{ExitCode: 3}, time.Second},
		"fake run=20s signal=SIGABRT exit=": {}, // invalid
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			d, done := New(), make(chan error, 1)
			go func() { done <- d.Run(ctx) }()
			in := make(chan worker.Input, 4)
			lines := 0
			from, ended := time.Now(), time.Time{}
			d.Start(worker.StartProcess{Worker: "w", Command: strings.Fields(command)}, func(i worker.Input) { ended = time.Now(); in <- i }, func(_ string, l []string) { lines += len(l) })
			first := <-in
			if f, failed := first.(worker.ProcessFailedToStart); failed {
				if want.after != 0 || f.ExitCode != 127 {
					t.Errorf("%s: %+v", command, f)
				}
				cancel()
				<-done
				return
			}
			time.Sleep(5 * time.Second) // virtual time
			if err := d.Signal("w", "SIGTERM"); err != nil {
				t.Error(err)
			}
			time.Sleep(4 * time.Second)
			d.Kill("w")
			x := (<-in).(worker.ProcessExited)
			if took := ended.Sub(from); took != want.after {
				t.Errorf("%s: ended after %s", command, took)
			}
			if x.ExitCode != want.x.ExitCode || x.Signal != want.x.Signal || x.Number != want.x.Number || x.OOM != want.x.OOM {
				t.Errorf("%s: %+v", command, x)
			}
			if strings.Contains(command, "lines=2") != (lines == 2) {
				t.Errorf("%s: %d lines", command, lines)
			}
			cancel()
			<-done
		})
	}
}

func TestEndOfTheDriverEndsItsProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		d, done := New(), make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		in := make(chan worker.Input, 4)
		tell := func(i worker.Input) { in <- i }
		d.Start(worker.StartProcess{Worker: "w", Command: []string{"fake", "ignore-term"}}, tell, nil)
		<-in
		cancel()
		<-done
		if x := (<-in).(worker.ProcessExited); x.Signal != "SIGKILL" {
			t.Errorf("%+v", x)
		}
		d.Start(worker.StartProcess{Worker: "v", Command: []string{"fake"}}, tell, nil)
		if f, ok := (<-in).(worker.ProcessFailedToStart); !ok || f.Detail == "" {
			t.Errorf("%+v", f)
		}
	})
}
