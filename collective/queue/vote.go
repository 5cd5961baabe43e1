package queue

import (
	"math"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// Places in a vote, of which the least over all ranks counts.
const (
	allCalled   = iota // 0 = something is pending here that was in no roll call
	noneStalled        // 0 = something is pending here for too long and was not reported
	noneJoined         // 0 = this rank has joined
	allJoined          // 1 = this rank has joined
	allStuck           // 1 = this rank's program waits, and has for too long
	firstHash          // and from here on, for each of the oldest operations: its hash, and the negative
)

// ballot is how many operations a vote is about.
const ballot = 12

// Hashes with a meaning of their own.
const (
	nothing  = 0             // no operation is pending in this place
	anything = math.MaxInt64 // this rank has joined: whatever the others have
)

// castVote fills q.vote.
func (q *Queue) castVote(pending []*request, joined, stuck bool) {
	if q.vote == nil {
		q.vote = make([]int64, firstHash+2*ballot)
	}
	v := q.vote
	v[allCalled], v[noneStalled] = 1, 1
	for _, r := range pending {
		if !r.rollCalled {
			v[allCalled] = 0
		}
		if q.late(r) {
			v[noneStalled] = 0
		}
	}
	v[noneJoined], v[allJoined], v[allStuck] = number(!joined), number(joined), number(stuck)
	for i := range ballot {
		h := int64(nothing)
		switch {
		case joined:
			h = anything
		case i < len(pending):
			h = pending[i].bothHash
		}
		v[firstHash+2*i], v[firstHash+2*i+1] = h, -h
		if joined {
			v[firstHash+2*i+1] = anything
		}
	}
}

// elected returns the operations that all ranks have that have not joined, in the same place.
func (q *Queue) elected() (hashes []int64) {
	for i := range ballot {
		least, most := q.vote[firstHash+2*i], -q.vote[firstHash+2*i+1]
		if least == most && least != nothing && least != anything {
			hashes = append(hashes, least)
		}
	}
	return hashes
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// late tells whether a request is pending for too long and was not reported.
func (q *Queue) late(r *request) bool {
	return q.opt.StallAfter > 0 && !r.reported && !r.refused && time.Since(r.since) > q.opt.StallAfter
}

// poll carries the vote out.
func (q *Queue) poll() error {
	return collective.Allreduce(q.life, q.comm, q.vote, collective.Min)
}
