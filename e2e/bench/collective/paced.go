package collective

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A link of 1 Gb/s is simulated by pacing every connection.
const (
	pace       = 125_000_000 // bytes per second
	pacedBytes = 16 << 20
)

// paced measures the utilisation of a slow link, and the gain from half as many bytes.
func (b *bench) paced(ctx context.Context) (string, error) {
	var t strings.Builder
	fmt.Fprintf(&t, "\nA link of 1 Gb/s (every connection paced to %d MB/s), 16 MiB, regroup over TCP:\n\n"+
		"| ranks | float32 | share of the ideal time (goal 97 %%, floor 93 %%) | float16 on the wire | speed-up (goal 1.95x, floor 1.8x) |\n|---|---|---|---|---|\n", pace/1_000_000)
	for _, world := range worlds {
		var full, half []float64
		for range b.rounds {
			for wire, all := range map[string]*[]float64{"float32": &full, "float16": &half} {
				p := ours("paced "+wire, strconv.Itoa(pacedBytes), "-over", "tcp", "-pace", strconv.Itoa(pace), "-wire", wire)
				lines, err := b.measure(ctx, p, world)
				if err != nil {
					return "", err
				}
				*all = append(*all, lines[0].median)
			}
		}
		slices.Sort(full)
		slices.Sort(half)
		ideal := 2 * float64(world-1) / float64(world) * pacedBytes / pace * 1e6
		f, h := full[len(full)/2], half[len(half)/2]
		fmt.Fprintf(&t, "| %d | %s | %.1f %% | %s | %.2fx |\n", world, spread(full), 100*ideal/f, spread(half), f/h)
	}
	return t.String(), nil
}
