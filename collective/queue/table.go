package queue

import (
	"encoding/binary"
	"errors"
)

// table is the names that all ranks know, and what is meant by each. It is the same on all
// ranks, because it changes only with what all of them have gathered.
type table struct {
	ids   map[entry]int
	names []entry // by id
}

type entry struct{ name, kind string }

// capacity bounds the table. When it is full all ranks forget everything at once.
const capacity = 1 << 14

func (t *table) init() { t.ids, t.names = map[entry]int{}, nil }

// learn adds what was gathered: result i is what rank i has pending and the table does not
// know. It returns the names that all ranks have and not all mean the same by.
func (t *table) learn(all [][]entry) (mismatched []*MismatchError) {
	if len(t.names) > capacity {
		t.init()
	}
	kinds := make([]map[string]string, len(all))
	for rank, entries := range all {
		kinds[rank] = make(map[string]string, len(entries))
		for _, e := range entries {
			kinds[rank][e.name] = e.kind
		}
	}
	for _, e := range all[0] { // in the order of the first rank
		said, everywhere, same := make([]string, len(all)), true, true
		for rank := range all {
			k, ok := kinds[rank][e.name]
			said[rank] = k
			everywhere = everywhere && ok
			same = same && k == e.kind
		}
		switch {
		case everywhere && same:
			t.ids[e] = len(t.names)
			t.names = append(t.names, e)
		case everywhere:
			mismatched = append(mismatched, &MismatchError{Name: e.name, Kinds: said})
		}
	}
	return mismatched
}

var errEntries = errors.New("queue: malformed names")

func encodeEntries(all []entry) []byte {
	var b []byte
	for _, e := range all {
		for _, s := range []string{e.name, e.kind} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
	}
	return b
}

func decodeEntries(b []byte) (all []entry, err error) {
	text := func() string {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			b, err = nil, errEntries
			return ""
		}
		s := string(b[k : k+int(n)])
		b = b[k+int(n):]
		return s
	}
	for len(b) > 0 && err == nil {
		all = append(all, entry{text(), text()})
	}
	return all, err
}
