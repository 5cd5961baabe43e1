package elastic

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// meta is the part of a snapshot that is not tensors.
type meta struct {
	Life   uint64 `json:"life"` // see checkpoint.Name
	Step   uint64 `json:"step"`
	Cursor Cursor `json:"cursor"`
	// Elastic is where an ElasticSampler is.
	Elastic *ElasticState `json:"elastic,omitempty"`

	Ledger wire.Ledger `json:"ledger"`
	Sizes  []int       `json:"sizes"` // bytes of each value
	values [][]byte    // in the order of their registration
}

var errMeta = errors.New("the part that is not tensors is damaged")

// encode returns the length of the JSON as u32 little endian, the JSON, and the values one after the other.
func (m *meta) encode() ([]byte, error) {
	size := 0
	for _, v := range m.values {
		m.Sizes = append(m.Sizes, len(v))
		size += len(v)
	}
	head, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 4+len(head)+size)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(head))), head...)
	for _, v := range m.values {
		b = append(b, v...)
	}
	return b, nil
}

// decodeMeta returns a meta whose values lie in b.
func decodeMeta(b []byte) (m meta, err error) {
	if len(b) < 4 {
		return m, errMeta
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	b = b[4:]
	if n > uint64(len(b)) {
		return m, errMeta
	}
	if err := json.Unmarshal(b[:n], &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMeta, err)
	}
	b = b[n:]
	for _, size := range m.Sizes {
		if size < 0 || size > len(b) {
			return m, errMeta
		}
		m.values = append(m.values, b[:size:size])
		b = b[size:]
	}
	if len(b) > 0 {
		return m, errMeta
	}
	return m, nil
}
