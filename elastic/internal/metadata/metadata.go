// Package metadata encodes the part of a commit that is not tensors: the step, the position in the
// data, the ledger of consumed samples and the values of the program.
//
// What this package does not do: it does not know what the values are.
package metadata

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Metadata is the part of a commit that is not tensors.
type Metadata struct {
	Run    uint64         `json:"run"` // see checkpoint.Name
	Step   uint64         `json:"step"`
	Cursor samples.Cursor `json:"cursor"`
	// Elastic is the position of an ElasticSampler.
	Elastic *samples.ElasticState `json:"elastic,omitempty"`

	Ledger workerprotocol.Ledger `json:"ledger"`
	Sizes  []int                 `json:"sizes"` // bytes of each value
	Values [][]byte              `json:"-"`     // in the order of registration
}

// ErrDamaged is the error for bytes that Encode has not returned.
var ErrDamaged = errors.New("the metadata of the state is damaged")

// Encode returns the length of the JSON as u32 little endian, the JSON, and the concatenated
// values.
func (m *Metadata) Encode() ([]byte, error) {
	size := 0
	for _, v := range m.Values {
		m.Sizes = append(m.Sizes, len(v))
		size += len(v)
	}
	head, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 4+len(head)+size)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(head))), head...)
	for _, v := range m.Values {
		b = append(b, v...)
	}
	return b, nil
}

// Decode decodes what Encode returned. The values alias b.
func Decode(b []byte) (m Metadata, err error) {
	if len(b) < 4 {
		return m, ErrDamaged
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	b = b[4:]
	if n > uint64(len(b)) {
		return m, ErrDamaged
	}
	if err := json.Unmarshal(b[:n], &m); err != nil {
		return m, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	b = b[n:]
	for _, size := range m.Sizes {
		if size < 0 || size > len(b) {
			return m, ErrDamaged
		}
		m.Values = append(m.Values, b[:size:size])
		b = b[size:]
	}
	if len(b) > 0 {
		return m, ErrDamaged
	}
	return m, nil
}

// Resume returns the metadata with which a run continues from a checkpoint.
func Resume(n checkpoint.Name, b []byte) (resumed []byte, step uint64, err error) {
	m, err := Decode(b)
	if err != nil {
		return nil, 0, err
	}
	m.Run, m.Sizes = n.Run+1, nil
	resumed, err = m.Encode()
	return resumed, m.Step, err
}
