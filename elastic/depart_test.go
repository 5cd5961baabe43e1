package elastic

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/internal/canceler"
)

// TestADepartureTellsWhoCouldNotReachWhom, on every rank, also on the accused one.
func TestADepartureTellsWhoCouldNotReachWhom(t *testing.T) {
	seen := fmt.Errorf("join generation 4: %w", &collective.PeerLostError{Rank: 2, Cause: collective.ErrUnreachable, Witness: 1, Witnessed: true})
	said := &collective.PeerLostError{Rank: 2, Cause: errors.New("its agent says so")}
	for _, c := range []struct {
		name    string
		err     error
		rank    int
		accused []int
		broken  [][2]int
	}{
		{"the witness", seen, 1, []int{2}, [][2]int{{1, 2}}},
		{"another one", seen, 0, []int{2}, [][2]int{{1, 2}}},
		{"the accused", seen, 2, nil, [][2]int{{1, 2}}},
		{"nobody has seen it", said, 0, []int{2}, nil},
		{"aborted", &collective.AbortedError{Rank: 1, Cause: errors.New("no")}, 0, nil, nil},
	} {
		d, err := classify(t.Context(), c.err, c.rank, &canceler.Canceler{})
		if err != nil || d.ending != lost || !reflect.DeepEqual(d.accused, c.accused) || !reflect.DeepEqual(d.broken, c.broken) {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
	}
}
