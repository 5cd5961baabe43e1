package queue

import (
	"encoding/binary"
	"errors"
)

// roll is what one rank says in a roll call.
type roll struct {
	joined bool
	items  []rollItem // what is pending there, as submitted
}

// rollItem is an operation: the hash of its name, and that of its name and specification.
type rollItem struct{ name, both int64 }

var errRoll = errors.New("queue: malformed roll call")

func encodeRoll(r roll) []byte {
	b := make([]byte, 0, 1+16*len(r.items))
	b = append(b, byte(number(r.joined)))
	for _, i := range r.items {
		b = binary.LittleEndian.AppendUint64(b, uint64(i.name))
		b = binary.LittleEndian.AppendUint64(b, uint64(i.both))
	}
	return b
}

func decodeRoll(b []byte) (r roll, err error) {
	if len(b)%16 != 1 || b[0] > 1 {
		return r, errRoll
	}
	r.joined = b[0] == 1
	for b = b[1:]; len(b) > 0; b = b[16:] {
		r.items = append(r.items, rollItem{
			int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:])),
		})
	}
	return r, nil
}

// compare returns the operations that all ranks have that have not joined: those that are the
// same everywhere, and the names of those that are not, both in the order of the first of
// these ranks. It depends on nothing but the rolls, so that all ranks come to the same.
func compare(rolls []roll) (ready []rollItem, differing []int64) {
	first := -1
	have := make([]map[int64]int64, len(rolls))
	for rank, r := range rolls {
		have[rank] = make(map[int64]int64, len(r.items))
		for _, i := range r.items {
			have[rank][i.name] = i.both
		}
		if first < 0 && !r.joined {
			first = rank
		}
	}
	if first < 0 {
		return nil, nil
	}
	for _, i := range rolls[first].items {
		everywhere, same := true, true
		for rank, r := range rolls {
			both, there := have[rank][i.name]
			if r.joined && !there {
				continue
			}
			everywhere, same = everywhere && there, same && both == i.both
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

// rollCall exchanges what is pending.
func (q *Queue) rollCall(pending []*request, joined bool) ([]roll, error) {
	mine := roll{joined: joined}
	q.mu.Lock()
	for _, r := range pending {
		mine.items = append(mine.items, rollItem{r.nameHash, r.bothHash})
		r.rollCalled = true
	}
	q.mu.Unlock()
	blobs, err := q.comm.AllgatherBlobs(q.life, encodeRoll(mine))
	if err != nil {
		return nil, err
	}
	rolls := make([]roll, len(blobs))
	for rank, b := range blobs {
		if rolls[rank], err = decodeRoll(b); err != nil {
			q.comm.Abort(err)
			return nil, err
		}
	}
	return rolls, nil
}

// texts exchanges a text per rank.
func (q *Queue) texts(mine string) ([]string, error) {
	blobs, err := q.comm.AllgatherBlobs(q.life, []byte(mine))
	all := make([]string, len(blobs))
	for i, b := range blobs {
		all[i] = string(b)
	}
	return all, err
}
