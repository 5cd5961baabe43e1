package elastic

import "slices"

// maxSources is how many holders send to one newcomer at most: more connections would not make it receive faster.
const maxSources = 8

// routes says which way each leaf of the state goes from its holders to all who lack it. Leaves are dealt to the holders one by one, so
// that each of h holders sends 1/h of what is lacked; each leaf then goes along those who lack it, everybody passing on
// what it has just received. The chain of a holder begins at another one than those of the others.
//
//	holders 0 and 1, lacking 2, 3 and 4:    0 → 2 → 3 → 4    (even leaves)
//	                                        1 → 3 → 4 → 2    (odd leaves)
//
// So everybody receives each leaf once, at the rate of its own connection, and nobody sends more than it receives: any number of
// newcomers take about as long as one. A tree of whole transfers takes as long for each of its log2(n) levels.
type routes struct {
	sources []int
	lacking []int
	lacks   [][]byte // by rank: bit i%8 of byte i/8 = it lacks leaf i
}

func newRoutes(holders, lacking []int, lacks [][]byte) routes {
	n := min(len(holders), max(maxSources, len(lacking)))
	r := routes{lacking: lacking, lacks: lacks}
	for i := range n { // evenly spread: neighbours share a machine and its network
		r.sources = append(r.sources, holders[i*len(holders)/n])
	}
	return r
}

// path returns the ranks through which a leaf goes, the source first; it is empty if nobody lacks the leaf. turn is the number of
// lacked leaves before this one.
func (r routes) path(path []int, leaf, turn int) []int {
	path = path[:0]
	s := turn % len(r.sources)
	path = append(path, r.sources[s])
	for k := range r.lacking {
		q := r.lacking[(s+k)%len(r.lacking)]
		if r.lacks[q][leaf/8]&(1<<(leaf%8)) != 0 {
			path = append(path, q)
		}
	}
	if len(path) == 1 {
		return path[:0]
	}
	return path
}

// errand is a rank's part: which leaves it gets from whom, and which it passes on to whom, in ascending order.
type errand struct {
	in, out map[int][]int
}

func (r routes) of(rank, leaves int) errand {
	e := errand{in: map[int][]int{}, out: map[int][]int{}}
	var path []int
	turn := 0
	for i := range leaves {
		if path = r.path(path, i, turn); len(path) == 0 {
			continue
		}
		turn++
		at := slices.Index(path, rank)
		if at > 0 {
			e.in[path[at-1]] = append(e.in[path[at-1]], i)
		}
		if at >= 0 && at+1 < len(path) {
			e.out[path[at+1]] = append(e.out[path[at+1]], i)
		}
	}
	return e
}
