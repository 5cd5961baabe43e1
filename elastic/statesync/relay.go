package statesync

import "slices"

// maxSources is the number of holders that send to a single newcomer: with more connections it
// would receive no faster.
const maxSources = 8

// relay is the plan of a transfer. The chunks are dealt to the holders in turn, so that each of h
// holders sends 1/h of what is missing; each chunk then travels along a chain of the members that
// lack it, and everybody forwards what it has just received. The chain of each holder begins at a
// different member.
//
//	holders 0 and 1, lacking 2, 3 and 4:    0 → 2 → 3 → 4    (even chunks)
//	                                        1 → 3 → 4 → 2    (odd chunks)
//
// So everybody receives each chunk once, at the rate of its own connection, and nobody sends more
// than it receives: any number of newcomers takes about as long as one. A tree of whole transfers
// takes that long for each of its log2(n) levels.
type relay struct {
	sources []int
	lacking []int
	missing []chunkSet // by rank
}

func newRelay(holders, lacking []int, missing []chunkSet) relay {
	n := min(len(holders), max(maxSources, len(lacking)))
	r := relay{lacking: lacking, missing: missing}
	for i := range n { // evenly spread, because neighbouring ranks share a machine and its network
		r.sources = append(r.sources, holders[i*len(holders)/n])
	}
	return r
}

// chain appends the ranks through which a chunk travels to chain[:0], the source first. The result
// is empty if nobody lacks the chunk. seq is the number of missing chunks before this one.
func (r relay) chain(chain []int, chunk, seq int) []int {
	chain = chain[:0]
	s := seq % len(r.sources)
	chain = append(chain, r.sources[s])
	for k := range r.lacking {
		q := r.lacking[(s+k)%len(r.lacking)]
		if r.missing[q].has(chunk) {
			chain = append(chain, q)
		}
	}
	if len(chain) == 1 {
		return chain[:0]
	}
	return chain
}

// relaySchedule is the part of one rank: the chunks that it receives and sends, by peer and in
// ascending order.
type relaySchedule struct {
	recv, send map[int][]int
}

func (r relay) schedule(rank, chunks int) relaySchedule {
	s := relaySchedule{recv: map[int][]int{}, send: map[int][]int{}}
	var chain []int
	seq := 0
	for i := range chunks {
		if chain = r.chain(chain, i, seq); len(chain) == 0 {
			continue
		}
		seq++
		at := slices.Index(chain, rank)
		if at > 0 {
			s.recv[chain[at-1]] = append(s.recv[chain[at-1]], i)
		}
		if at >= 0 && at+1 < len(chain) {
			s.send[chain[at+1]] = append(s.send[chain[at+1]], i)
		}
	}
	return s
}
