package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/output"
)

// stored reads the worker's output back and returns how many of its lines are there, and how many
// are missing according to the marks, and the number of the newest. The lines must be in order, and
// each gap exactly as long as its mark says.
func stored(t *testing.T, p broker.Ports) (lines, missing, newest int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next := 1
	_ = p.Log.Follow(ctx, broker.Follow{Stream: events.StreamLogs, Subjects: []string{events.AllLogs}, Start: broker.FromFirst}, func(s broker.Stored) error {
		for text := range strings.Lines(string(s.Data)) {
			n := 0
			if _, err := fmt.Sscanf(text, "regroup: %d lines dropped here", &n); err == nil {
				missing += n
				next += n
				continue
			}
			if _, err := fmt.Sscanf(text, "line %d", &n); err != nil || n != next {
				t.Fatalf("%q where line %d should be", text, next)
			}
			lines++
			newest = n
			next++
		}
		return nil
	}, cancel)
	return lines, missing, newest
}

// TestOutputIsStoredAtItsRate: a burst at once, the rest in time; what does not fit into the buffer
// meanwhile is counted.
func TestOutputIsStoredAtItsRate(t *testing.T) {
	const rate, burst, printed = 100 << 10, 512 << 10, 200_000 // lines of 11 bytes: 2 MiB
	for name, c := range map[string]struct {
		buffer  int
		dropped bool
	}{"a buffer that is large enough": {16 << 20, false}, "a buffer that is not": {1 << 20, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldWith(t, agent.Config{Logs: logs.Config{Buffer: c.buffer, Rate: rate, Burst: burst}})
				defer w.wait()
				size := func() (n int) {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					_ = w.bus.Ports().Log.Follow(ctx, broker.Follow{Stream: events.StreamLogs, Subjects: []string{events.AllLogs}, Start: broker.FromFirst}, func(s broker.Stored) error {
						n += len(s.Data)
						return nil
					}, cancel)
					return n
				}
				w.train(fmt.Sprintf("lines=%d run=1m", printed))
				time.Sleep(5 * time.Second) // virtual
				synctest.Wait()
				if n := size(); n < burst || n > burst+6*rate {
					t.Errorf("after 5 s %d bytes are stored, want a burst of %d and %d for each second", n, burst, rate)
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				lines, missing, newest := stored(t, w.bus.Ports())
				if lines+missing != printed || newest != printed || (missing > 0) != c.dropped {
					t.Errorf("%d lines are there and marks count %d, of %d; the newest is %d", lines, missing, printed, newest)
				}
			})
		})
	}
}

// TestMissingLinesAreMarked: whether the log is slow or unavailable, each printed line is stored or
// counted by a mark, also if the worker prints no more, and the newest are stored; the fact of the
// exit has the total.
func TestMissingLinesAreMarked(t *testing.T) {
	const printed = 100_000
	for name, c := range map[string]struct {
		buffer  int
		dropped bool
		lives   bool // it prints nothing more, and goes on
	}{
		"a buffer that is large enough":    {0, false, false},
		"a buffer that is not":             {256 << 10, true, false},
		"one that is not, of a quiet rank": {256 << 10, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldWith(t, agent.Config{Logs: logs.Config{Buffer: c.buffer}})
				var away atomic.Bool
				away.Store(true)
				w.bus.FailPublishes(func(subject string) (bool, error) {
					if away.Load() && strings.HasPrefix(subject, "regroup.log.") {
						return false, errcode.Errorf(errcode.Unavailable, "the store is away")
					}
					return false, nil
				})
				run := 5 * time.Second
				if c.lives {
					run = time.Minute
				}
				w.train(fmt.Sprintf("lines=%d run=%s", printed, run))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				away.Store(false)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				lines, missing, newest := stored(t, w.bus.Ports())
				time.Sleep(run)
				synctest.Wait()
				x := w.fact("exited").(events.WorkerExited)
				if newest != printed {
					t.Errorf("the newest line is %d, of %d: the reason of the end is printed last", newest, printed)
				}
				if lines+missing != printed || uint64(missing) != x.Dropped || (missing > 0) != c.dropped {
					t.Errorf("%d lines are there and marks count %d, of %d; the exit says %d", lines, missing, printed, x.Dropped)
				}
				w.wait()
			})
		})
	}
}

// TestOutputIsStoredBeforeTheExit, so that who reads until the end of a job reads all of it; but a
// failure is published soon, however slow the log is.
func TestOutputIsStoredBeforeTheExit(t *testing.T) {
	for name, c := range map[string]struct {
		worker string
		slow   time.Duration // the log
		want   string
	}{
		"success":                       {"lines=3 run=1s", 2 * time.Second, "output exit"},
		"failure":                       {"lines=3 run=1s exit=3", time.Millisecond, "output exit"},
		"failure with a slow log":       {"lines=3 run=1s exit=3", 2 * time.Second, "exit output"},
		"success with one that is away": {"lines=3 run=1s", time.Minute, "exit output"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var output time.Time // when the store takes the output
				var order []string
				w.bus.FailPublishes(func(subject string) (bool, error) {
					switch {
					case strings.HasSuffix(subject, ".exited"):
						order = append(order, "exit")
					case !strings.HasPrefix(subject, "regroup.log."):
					case output.IsZero():
						output = time.Now().Add(c.slow)
						fallthrough
					case time.Now().Before(output):
						return false, errcode.Errorf(errcode.Unavailable, "the store is slow")
					default:
						order = append(order, "output")
					}
					return false, nil
				})
				w.train(c.worker)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if got := strings.Join(order, " "); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				w.wait()
			})
		})
	}
}

// TestRefusedChunkIsCounted: the log refuses one for good.
func TestRefusedChunkIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		refused := 0
		w.bus.FailPublishes(func(subject string) (bool, error) {
			if strings.HasPrefix(subject, "regroup.log.") && refused == 0 {
				refused++
				return false, errcode.Errorf(errcode.TooLarge, "larger than it takes")
			}
			return false, nil
		})
		w.train("lines=3000 run=5s")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		lines, missing, _ := stored(t, w.bus.Ports())
		if lines+missing != 3000 || missing == 0 {
			t.Errorf("%d lines are there and marks count %d, of 3000", lines, missing)
		}
		w.wait()
	})
}

// TestStatesOfABarAreBounded: while the log is away, of each bar the newest state alone waits,
// beside all finished lines; then the stored output tells the same.
func TestStatesOfABarAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var away atomic.Bool
		away.Store(true)
		w.bus.FailPublishes(func(subject string) (bool, error) {
			if away.Load() && strings.HasPrefix(subject, "regroup.log.") {
				return false, errcode.Errorf(errcode.Unavailable, "the store is away")
			}
			return false, nil
		})
		w.train("bars=1000 run=5s")
		time.Sleep(4 * time.Second)
		away.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		open, finished := 0, []string{}
		_ = w.bus.Ports().Log.Follow(ctx, broker.Follow{Stream: events.StreamLogs, Subjects: []string{events.AllLogs}, Start: broker.FromFirst}, func(s broker.Stored) error {
			for l := range output.Lines(s.Data) {
				if l.Open {
					open++
				} else {
					finished = append(finished, l.Text)
				}
			}
			return nil
		}, cancel)
		if want := []string{"begins", "printed beside it", "bar 1000", "ends"}; !slices.Equal(finished, want) {
			t.Errorf("the finished lines are %q, want %q", finished, want)
		}
		if open > 2 { // one that was being stored, and the newest
			t.Errorf("%d states of a bar are stored", open)
		}
		w.wait()
	})
}
