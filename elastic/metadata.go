package elastic

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// metadata is the part of a commit that is not tensors.
type metadata struct {
	Run    uint64 `json:"life"` // see checkpoint.Name
	Step   uint64 `json:"step"`
	Cursor Cursor `json:"cursor"`
	// Elastic is the position of an ElasticSampler.
	Elastic *ElasticState `json:"elastic,omitempty"`

	Ledger wire.Ledger `json:"ledger"`
	Sizes  []int       `json:"sizes"` // bytes of each value
	values [][]byte    // in the order of registration
}

var errMetadata = errors.New("the metadata of the state is damaged")

// encode returns the length of the JSON as u32 little endian, the JSON, and the concatenated values.
func (m *metadata) encode() ([]byte, error) {
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

// decodeMetadata decodes what encode returned. The values alias b.
func decodeMetadata(b []byte) (m metadata, err error) {
	if len(b) < 4 {
		return m, errMetadata
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	b = b[4:]
	if n > uint64(len(b)) {
		return m, errMetadata
	}
	if err := json.Unmarshal(b[:n], &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMetadata, err)
	}
	b = b[n:]
	for _, size := range m.Sizes {
		if size < 0 || size > len(b) {
			return m, errMetadata
		}
		m.values = append(m.values, b[:size:size])
		b = b[size:]
	}
	if len(b) > 0 {
		return m, errMetadata
	}
	return m, nil
}

// resumeMetadata returns the metadata with which a run continues from a checkpoint.
func resumeMetadata(n checkpoint.Name, b []byte) (resumed []byte, step uint64, err error) {
	m, err := decodeMetadata(b)
	if err != nil {
		return nil, 0, err
	}
	m.Run, m.Sizes = n.Run+1, nil
	resumed, err = m.encode()
	return resumed, m.Step, err
}
