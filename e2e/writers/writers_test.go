package writers_test

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/e2e/writers"
)

func TestAlone(t *testing.T) {
	for name, c := range map[string]struct {
		all  []writers.Entry
		want string // in the error; empty = there is none
	}{
		"one after the other": {[]writers.Entry{{1, 1, 0, 11}, {2, 1, 1, 12}, {3, 2, 0, 21}}, ""},
		"in another order":    {[]writers.Entry{{3, 2, 0, 21}, {1, 1, 0, 11}, {2, 1, 1, 12}}, ""},
		"two copies of a rank": {
			[]writers.Entry{{1, 1, 0, 11}, {2, 2, 0, 21}, {5, 1, 0, 11}},
			"rank 0 of g1 (pid 11) wrote 3ns after rank 0 of g2 (pid 21) had begun",
		},
	} {
		if err := writers.Alone(c.all); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
