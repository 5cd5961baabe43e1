package sim

import (
	"fmt"
	"slices"
	"strings"
)

// shrink drops faults one by one while the same invariant is still violated.
func shrink(sc scenario, m mutation, number int) scenario {
	for i := 0; i < len(sc.faults); {
		less := sc
		less.faults = slices.Delete(slices.Clone(sc.faults), i, i+1)
		if v := run(less, m, nil); v != nil && v.number == number {
			sc = less
			continue
		}
		i++
	}
	return sc
}

// script writes a scenario as a file of testdata/regressions: the seed, then one fault a line.
func script(sc scenario) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", sc.seed)
	for _, f := range sc.faults {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// parse reads what script wrote. Lines with # are for people.
func parse(text string) (scenario, error) {
	var sc scenario
	seen := false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !seen:
			var s uint64
			if _, err := fmt.Sscanf(line, "seed %d", &s); err != nil {
				return sc, fmt.Errorf("first line %q: want seed N", line)
			}
			sc, seen = draw(s), true
			sc.faults = nil
		default:
			f, err := parseFault(line)
			if err != nil {
				return sc, err
			}
			sc.faults = append(sc.faults, f)
		}
	}
	if !seen {
		return sc, fmt.Errorf("no seed")
	}
	return sc, nil
}
