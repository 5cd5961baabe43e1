package elastic

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// standing is what a member's offer is worth.
type standing byte

const (
	fresh     standing = iota // what it would start from
	stored                    // a checkpoint that it can read
	loaded                    // one that it has read
	committed                 // a commit
)

// offer is what a member brings to a sync: the commit that it holds, else a checkpoint, else the state it would start from.
type offer struct {
	standing  standing
	name      checkpoint.Name // of a commit without its life
	metaBytes uint64
	hash      digest // not of what is only stored
	layout    digest
}

const offerBytes = 1 + 4*8 + 2*sha256.Size

func (o offer) encode() []byte {
	b := make([]byte, 0, offerBytes)
	b = append(b, byte(o.standing))
	for _, n := range []uint64{o.name.Life, o.name.Generation, o.name.Step, o.metaBytes} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, o.hash[:]...)
	return append(b, o.layout[:]...)
}

func decodeOffer(b []byte) (o offer, err error) {
	if len(b) != offerBytes || b[0] > byte(committed) {
		return offer{}, fmt.Errorf("sync: an offer of %d bytes: do all workers run the same version?", len(b))
	}
	o.standing = standing(b[0])
	for i, to := range []*uint64{&o.name.Life, &o.name.Generation, &o.name.Step, &o.metaBytes} {
		*to = binary.LittleEndian.Uint64(b[1+8*i:])
	}
	b = b[1+4*8:]
	copy(o.hash[:], b)
	copy(o.layout[:], b[sha256.Size:])
	return o, nil
}

// newer orders offers: commits before checkpoints before starts; commits and checkpoints by their names, then the lowest hash, so that all
// members choose the same whatever the cause of a difference.
func newer(a, b offer) bool {
	if (a.standing == committed) != (b.standing == committed) {
		return a.standing == committed
	}
	if a.standing == fresh || b.standing == fresh {
		return a.standing > b.standing // nobody holds anything: the first rank's start is as good as any
	}
	return cmp.Or(b.name.Compare(a.name), cmp.Compare(b.standing, a.standing), a.hash.compare(b.hash)) < 0
}

// agree chooses, from all members' offers, the state that everybody will have: the newest commit, else the newest checkpoint, else
// rank 0's start. It returns the rank that offered it first, and who has it and who lacks it.
func agree(offers []offer) (best int, holders, lacking []int, err error) {
	for r := range offers {
		if offers[r].layout != offers[0].layout {
			return 0, nil, nil, fmt.Errorf("sync: the states of rank 0 and rank %d differ in tensors, values or data set", r)
		}
		if newer(offers[r], offers[best]) {
			best = r
		}
	}
	for r, o := range offers {
		if o.hash == offers[best].hash && o.metaBytes == offers[best].metaBytes {
			holders = append(holders, r)
		} else {
			lacking = append(lacking, r)
		}
	}
	return best, holders, lacking, nil
}
