package recovery

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/e2e/report"
	"github.com/regroup-io/regroup/internal/wait"
)

// price is what the clusters of one kind have shown.
type price struct {
	recover, submit []time.Duration
	idle            []time.Duration // processor time of all processes in a second
}

const (
	rounds = 10 // how often a cluster of each kind is started
	turns  = 4  // how often they take turns in each round
)

// Guarded measures clusters whose processes have identities and TLS, beside clusters without. What
// one cluster shows differs from the next more than the kinds do, and so does the machine from
// minute to minute: two clusters run at once, and take turns with few trials each.
func Guarded(f *flag.FlagSet) func(context.Context, *report.Report) error {
	b := &bench{}
	b.flags(f, 400, 200, 10*time.Second)
	times := f.Int("rounds", rounds, "how often a cluster of each kind is started")
	return func(ctx context.Context, r *report.Report) error {
		b.Report = r
		var both [2]price
		for round := range *times {
			if err := b.round(ctx, &both, round, *times); err != nil {
				return err
			}
			r.Say("round %d of %d", round+1, *times)
		}
		var text strings.Builder
		fmt.Fprintf(&text, `The broker, each service and an agent with four slots are processes of their own on this machine; %d times a cluster of each kind, both at once,
which take turns. Medians of times, and the mean of processor time.

| what | trials | without | with identities and TLS | ratio | goal |
|---|---|---|---|---|---|
`, *times)
		median := func(d []time.Duration) time.Duration { return report.Quantile(d, 0.5) }
		for _, row := range []struct {
			what          string
			without, with []time.Duration
			of            func([]time.Duration) time.Duration
		}{
			{"worker SIGKILL to every survivor's first step of the new generation, ms", both[0].recover, both[1].recover, median},
			{"submit to first step of 4 Go workers, ms", both[0].submit, both[1].submit, median},
			{"idle: processor time of all processes, ms in a second", both[0].idle, both[1].idle, mean},
		} {
			without, with := report.MS(row.of(row.without)), report.MS(row.of(row.with))
			fmt.Fprintf(&text, "| %s | %d | %.1f | %.1f | %.2f | 1.10 |\n", row.what, len(row.with), without, with, with/without)
		}
		return r.Section("With identities and TLS", text.String())
	}
}

func mean(d []time.Duration) (sum time.Duration) {
	for _, one := range d {
		sum += one
	}
	return sum / time.Duration(len(d))
}

// round adds what two new clusters show, one without and one with identities. They take turns, and
// another one begins in each round. Then both are idle.
func (b *bench) round(ctx context.Context, both *[2]price, round, rounds int) (err error) {
	var all [2]*cluster.Cluster
	for i := range all {
		if all[i], err = cluster.Start(ctx, cluster.Options{Bin: b.Bin, Name: "bench", Nodes: 1, Slots: 4, Guarded: i == 1}); err != nil {
			return err
		}
		defer all[i].Close()
	}
	each := func(n int) int { return max(1, n/rounds/turns) }
	for turn := range turns {
		for i := range all {
			i = (i + round + turn) % len(all)
			took, err := submits(ctx, all[i], each(b.submits))
			survivors, _, again := breaks(ctx, all[i], each(b.kills), killWorker)
			if err = errors.Join(err, again); err != nil {
				return fmt.Errorf("identities and TLS: %v: %w", i == 1, err)
			}
			both[i].submit, both[i].recover = append(both[i].submit, took...), append(both[i].recover, survivors...)
		}
	}
	wait.Sleep(ctx, 5*time.Second) // the end of the last job
	for i, c := range all {
		_, share, err := idle(ctx, b.idle, c.PIDs(c.Processes.Names()...))
		if err != nil {
			return err
		}
		both[i].idle = append(both[i].idle, time.Duration(share*float64(time.Second)))
	}
	return nil
}
