package elastic

import "fmt"

// transfer is one sending of the whole state from a holder to a rank that lacks it.
type transfer struct{ from, to int }

// agree chooses, from all members' offers, the state that everybody will have: the newest commit, else rank 0's start.
// It returns the rank that offered it first and the transfers in rounds. Within a round every rank takes part once; who
// has received becomes a holder, so n receivers take about log2(n) rounds.
func agree(offers []offer) (best int, plan [][]transfer, err error) {
	for r := range offers {
		if offers[r].layout != offers[0].layout {
			return 0, nil, fmt.Errorf("sync: the states of rank 0 and rank %d differ in tensors, objects or data set", r)
		}
		if newer(offers[r], offers[best]) {
			best = r
		}
	}
	var holders, lacking []int
	for r, o := range offers {
		if o.hash == offers[best].hash && o.metaBytes == offers[best].metaBytes {
			holders = append(holders, r)
		} else {
			lacking = append(lacking, r)
		}
	}
	for len(lacking) > 0 {
		n := min(len(holders), len(lacking))
		round := make([]transfer, n)
		for i := range round {
			round[i] = transfer{from: holders[i], to: lacking[i]}
		}
		plan = append(plan, round)
		holders = append(holders, lacking[:n]...)
		lacking = lacking[n:]
	}
	return best, plan, nil
}
