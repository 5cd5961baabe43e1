package elastic

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// offer is what a member brings to a sync: the commit that it holds, or the state it would start from.
type offer struct {
	holds            bool
	generation, step uint64
	metaBytes        uint64
	hash, layout     digest
}

const offerBytes = 1 + 3*8 + 2*sha256.Size

func (o offer) encode() []byte {
	b := make([]byte, 0, offerBytes)
	b = append(b, 0)
	if o.holds {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, o.generation)
	b = binary.LittleEndian.AppendUint64(b, o.step)
	b = binary.LittleEndian.AppendUint64(b, o.metaBytes)
	b = append(b, o.hash[:]...)
	return append(b, o.layout[:]...)
}

func decodeOffer(b []byte) (offer, error) {
	if len(b) != offerBytes {
		return offer{}, fmt.Errorf("sync: an offer of %d bytes: do all workers run the same version?", len(b))
	}
	o := offer{
		holds: b[0] == 1, generation: binary.LittleEndian.Uint64(b[1:]), step: binary.LittleEndian.Uint64(b[9:]),
		metaBytes: binary.LittleEndian.Uint64(b[17:]),
	}
	copy(o.hash[:], b[25:])
	copy(o.layout[:], b[25+sha256.Size:])
	return o, nil
}

// newer orders offers: a held commit before none, then by generation and step, then the lowest hash, so that all
// members choose the same whatever the cause of a difference.
func newer(a, b offer) bool {
	if a.holds != b.holds {
		return a.holds
	}
	if !a.holds {
		return false // nobody holds anything: the first rank's start is as good as any
	}
	return cmp.Or(cmp.Compare(b.generation, a.generation), cmp.Compare(b.step, a.step), a.hash.compare(b.hash)) < 0
}

// agree chooses, from all members' offers, the state that everybody will have: the newest commit, else rank 0's start.
// It returns the rank that offered it first, and who has it and who lacks it.
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
