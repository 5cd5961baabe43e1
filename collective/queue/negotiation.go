package queue

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// Indices of a vote. The minimum over all ranks counts.
const (
	allNegotiated = iota // 0 = a pending operation has not been negotiated yet
	noneStalled          // 0 = an operation has been pending for too long and was not reported
	noneJoined           // 0 = this rank has joined
	allJoined            // 1 = this rank has joined
	allBlocked           // 1 = this rank's program has been waiting for too long
	firstHash            // from here on, for each of the oldest operations: its hash and its negative
)

const maxVoted = 12

// Hashes with a special meaning.
const (
	noOperation  = 0             // no operation is pending here
	anyOperation = math.MaxInt64 // this rank has joined: matches every operation
)

func (q *Queue) fillVote(pending []*request, joined, blocked bool) {
	if q.vote == nil {
		q.vote = make([]int64, firstHash+2*maxVoted)
	}
	v := q.vote
	v[allNegotiated], v[noneStalled] = 1, 1
	for _, r := range pending {
		if !r.negotiated {
			v[allNegotiated] = 0
		}
		if q.stalled(r) {
			v[noneStalled] = 0
		}
	}
	v[noneJoined], v[allJoined], v[allBlocked] = boolInt(!joined), boolInt(joined), boolInt(blocked)
	for i := range maxVoted {
		h := int64(noOperation)
		switch {
		case joined:
			h = anyOperation
		case i < len(pending):
			h = pending[i].nameSpecHash
		}
		v[firstHash+2*i], v[firstHash+2*i+1] = h, -h
		if joined {
			v[firstHash+2*i+1] = anyOperation
		}
	}
}

// commonHashes returns the operations that all ranks that have not joined have at the same index.
func (q *Queue) commonHashes() (hashes []int64) {
	for i := range maxVoted {
		least, most := q.vote[firstHash+2*i], -q.vote[firstHash+2*i+1]
		if least == most && least != noOperation && least != anyOperation {
			hashes = append(hashes, least)
		}
	}
	return hashes
}

func boolInt(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// stalled reports whether a request has been pending for too long and was not reported.
func (q *Queue) stalled(r *request) bool {
	return q.opt.StallAfter > 0 && !r.reported && !r.refused && time.Since(r.since) > q.opt.StallAfter
}

// exchangeVotes computes the minimum of all ranks' votes.
func (q *Queue) exchangeVotes() error {
	return collective.Allreduce(q.ctx, q.comm, q.vote, collective.Min)
}

// requestList is what one rank sends in a negotiation.
type requestList struct {
	joined bool
	items  []requestID // pending operations, in the order of submission
}

// requestID is the hash of an operation's name, and that of its name and specification.
type requestID struct{ name, nameSpec int64 }

var errRequestList = errors.New("queue: malformed request list")

func encodeRequestList(r requestList) []byte {
	b := make([]byte, 0, 1+16*len(r.items))
	b = append(b, byte(boolInt(r.joined)))
	for _, i := range r.items {
		b = binary.LittleEndian.AppendUint64(b, uint64(i.name))
		b = binary.LittleEndian.AppendUint64(b, uint64(i.nameSpec))
	}
	return b
}

func decodeRequestList(b []byte) (r requestList, err error) {
	if len(b)%16 != 1 || b[0] > 1 {
		return r, errRequestList
	}
	r.joined = b[0] == 1
	for b = b[1:]; len(b) > 0; b = b[16:] {
		r.items = append(r.items, requestID{
			int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:])),
		})
	}
	return r, nil
}

// compare returns the operations that are pending on every rank that has not joined: those that are
// the same everywhere, and the names of those that differ, both in the order of the first of these
// ranks. The result depends only on the lists, so that all ranks get the same.
func compare(lists []requestList) (ready []requestID, differing []int64) {
	first := -1
	have := make([]map[int64]int64, len(lists))
	for rank, r := range lists {
		have[rank] = make(map[int64]int64, len(r.items))
		for _, i := range r.items {
			have[rank][i.name] = i.nameSpec
		}
		if first < 0 && !r.joined {
			first = rank
		}
	}
	if first < 0 {
		return nil, nil
	}
	for _, i := range lists[first].items {
		everywhere, same := true, true
		for rank, r := range lists {
			nameSpec, there := have[rank][i.name]
			if r.joined && !there {
				continue
			}
			everywhere, same = everywhere && there, same && nameSpec == i.nameSpec
		}
		switch {
		case everywhere && same:
			ready = append(ready, i)
		case everywhere:
			differing = append(differing, i.name)
		}
	}
	return ready, differing
}

// negotiate exchanges what is pending on each rank. A request that was replaced since the cycle
// began is replaced in pending too.
func (q *Queue) negotiate(pending []*request, joined bool) ([]requestList, error) {
	mine := requestList{joined: joined}
	q.mu.Lock()
	for i, r := range pending {
		if now := q.pending[r.name]; now != nil {
			r, pending[i] = now, now
		}
		mine.items = append(mine.items, requestID{r.nameHash, r.nameSpecHash})
		r.negotiated = true
	}
	q.mu.Unlock()
	blobs, err := q.comm.AllgatherBlobs(q.ctx, encodeRequestList(mine))
	if err != nil {
		return nil, err
	}
	lists := make([]requestList, len(blobs))
	for rank, b := range blobs {
		if lists[rank], err = decodeRequestList(b); err != nil {
			q.comm.Abort(err)
			return nil, err
		}
	}
	return lists, nil
}

// texts exchanges a text per rank.
func (q *Queue) texts(mine string) ([]string, error) {
	blobs, err := q.comm.AllgatherBlobs(q.ctx, []byte(mine))
	all := make([]string, len(blobs))
	for i, b := range blobs {
		all[i] = string(b)
	}
	return all, err
}
