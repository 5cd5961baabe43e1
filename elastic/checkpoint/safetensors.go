package checkpoint

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// Part is a part of a tensor: the elements of a box, in row-major order.
type Part struct {
	Tensor reshard.Tensor
	Box    reshard.Box
	Memory []byte
}

// dtypes are the names of element types in safetensors files, by what programs call them.
var dtypes = map[string]string{
	"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
	"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
	"bool": "BOOL", "complex64": "C64",
}

// The keys of a file's __metadata__, of which the first two are PyTorch's.
const (
	keyFormat   = "format"
	keySharding = "DCP_SHARDING_INFO"
	keyRegroup  = "regroup"
	keyChecksum = "regroup_sha256"
)

const metadataKey = "__metadata__"

// entry describes a tensor in the header of a safetensors file.
type entry struct {
	Type    string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // begin and end, in what follows the header
}

type savedOffsets struct {
	Offsets []int `json:"saved_offsets"`
}

// partsHeader is what the file says beside that.
type partsHeader struct {
	Name    Name                   `json:"name"`
	ID      string                 `json:"id"` // of the set
	Rank    int                    `json:"rank"`
	World   int                    `json:"world"`
	Tensors map[string]wholeTensor `json:"tensors"`
}

// wholeTensor describes a tensor of which the file has a part.
type wholeTensor struct {
	Type   string `json:"type"`
	Width  int    `json:"width"`
	Shape  []int  `json:"shape"`
	Hashes string `json:"hashes"` // hex, of each chunk of the part
}

// stored returns the type, shape and offset with which a part is in a file. Elements of a type that
// safetensors lacks are bytes, in one more dimension.
func (p Part) stored() (dtype string, shape, offset []int) {
	shape, offset = append([]int{}, p.Box.Size...), append([]int{}, p.Box.Offset...)
	if dtype = dtypes[strings.TrimPrefix(p.Tensor.Type, "torch.")]; dtype == "" {
		return "U8", append(shape, p.Tensor.Width), append(offset, 0)
	}
	return dtype, shape, offset
}

// encodeParts returns the begin of a file with these parts, and the order in which they follow.
func encodeParts(s Set, rank, world int, parts []Part) (front []byte, ordered []Part, err error) {
	ordered = slices.Clone(parts)
	slices.SortFunc(ordered, func(a, b Part) int { // so that elements are aligned
		return cmp.Or(cmp.Compare(b.Tensor.Width, a.Tensor.Width), cmp.Compare(a.Tensor.Name, b.Tensor.Name))
	})
	ours := partsHeader{Name: s.Name, ID: s.id(), Rank: rank, World: world, Tensors: map[string]wholeTensor{}}
	offsets, header, at := map[string]savedOffsets{}, map[string]any{}, int64(0)
	for _, p := range ordered {
		name := p.Tensor.Name
		dtype, shape, offset := p.stored()
		end := at + int64(len(p.Memory))
		header[name], offsets[name] = entry{dtype, shape, [2]int64{at, end}}, savedOffsets{offset}
		var hashes []byte
		for chunk := range slices.Chunk(p.Memory, chunkBytes) {
			h := hashOf(chunk)
			hashes = append(hashes, h[:]...)
		}
		ours.Tensors[name] = wholeTensor{p.Tensor.Type, p.Tensor.Width, append([]int{}, p.Tensor.Shape...), hex.EncodeToString(hashes)}
		at = end
	}
	if _, taken := header[metadataKey]; taken {
		return nil, nil, fmt.Errorf("a tensor has the name %s, which stands for something else in safetensors files", metadataKey)
	}
	metadata := map[string]string{keyFormat: "pt", keyChecksum: noChecksum}
	for key, v := range map[string]any{keySharding: offsets, keyRegroup: ours} {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, nil, err
		}
		metadata[key] = string(b)
	}
	header[metadataKey] = metadata
	b, err := json.Marshal(header)
	if err != nil {
		return nil, nil, err
	}
	b = append(b, bytes.Repeat([]byte{' '}, -len(b)&7)...)
	if len(b) > maxHeader {
		return nil, nil, fmt.Errorf("a header of %d bytes, at most %d are read", len(b), maxHeader)
	}
	sum := sha256.Sum256(b)
	hex.Encode(checksumIn(b), sum[:])
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...), ordered, nil
}

// noChecksum stands in the place of the checksum, which is that of a header with this in it.
var noChecksum = strings.Repeat("0", 2*sha256.Size)

// checksumIn is the place of the checksum in a header; nil = it has none.
func checksumIn(header []byte) []byte {
	key := []byte(`"` + keyChecksum + `":"`) // within a string the quotes would be escaped
	at := bytes.Index(header, key)
	if at += len(key); at < len(key) || len(header)-at < len(noChecksum) {
		return nil
	}
	return header[at : at+len(noChecksum)]
}

// storedPart is a part in a file.
type storedPart struct {
	Part
	at     int64 // in the file
	hashes []byte
}

func (p *storedPart) bytes() int { return p.Box.Elements() * p.Tensor.Width }

// decodeParts reads the header of a file of so many bytes, and checks it.
func decodeParts(file io.ReaderAt, size int64, s Set) (h partsHeader, parts []storedPart, err error) {
	front := make([]byte, 8)
	if _, err := file.ReadAt(front, 0); err != nil {
		return h, nil, damaged(err, "it is cut off")
	}
	n := binary.LittleEndian.Uint64(front)
	if n > uint64(min(maxHeader, size)) {
		return h, nil, corrupt("its header has %d bytes", n)
	}
	header := make([]byte, n)
	if _, err := file.ReadAt(header, 8); err != nil {
		return h, nil, damaged(err, "its header is cut off")
	}
	place := checksumIn(header)
	want := string(place)
	copy(place, noChecksum)
	if sum := sha256.Sum256(header); place == nil || want != hex.EncodeToString(sum[:]) {
		return h, nil, corrupt("its checksum does not match")
	}
	var (
		entries  map[string]json.RawMessage
		metadata map[string]string
		offsets  map[string]savedOffsets
	)
	if err := json.Unmarshal(header, &entries); err != nil {
		return h, nil, corrupt("its header is no JSON: %v", err)
	}
	if err := json.Unmarshal(entries[metadataKey], &metadata); err != nil {
		return h, nil, corrupt("its metadata: %v", err)
	}
	if err := json.Unmarshal([]byte(metadata[keySharding]), &offsets); err != nil {
		return h, nil, corrupt("its offsets: %v", err)
	}
	if err := json.Unmarshal([]byte(metadata[keyRegroup]), &h); err != nil {
		return h, nil, corrupt("its parts: %v", err)
	}
	if h.Name != s.Name || h.ID != s.id() || h.World < 1 || h.Rank < 0 || h.Rank >= h.World {
		return h, nil, corrupt("it is of rank %d of %d in %v, set %s", h.Rank, h.World, h.Name, h.ID)
	}
	total := int64(8 + len(header))
	for name, whole := range h.Tensors {
		var e entry
		if err := json.Unmarshal(entries[name], &e); err != nil {
			return h, nil, corrupt("its part of %s: %v", name, err)
		}
		p, ok := newStoredPart(name, whole, e, offsets[name].Offsets)
		if !ok {
			return h, nil, corrupt("its part of %s does not fit what it says of it", name)
		}
		p.at += int64(8 + len(header))
		total = max(total, p.at+int64(p.bytes()))
		parts = append(parts, p)
	}
	if total != size {
		return h, nil, corrupt("it has %d bytes, not %d", size, total)
	}
	slices.SortFunc(parts, func(a, b storedPart) int { return cmp.Compare(a.Tensor.Name, b.Tensor.Name) })
	return h, parts, nil
}

func newStoredPart(name string, whole wholeTensor, e entry, offset []int) (p storedPart, ok bool) {
	dims := len(whole.Shape)
	if len(e.Shape) < dims || len(offset) < dims || whole.Width < 1 || e.Offsets[0] < 0 {
		return p, false
	}
	p.Tensor = reshard.Tensor{Name: name, Type: whole.Type, Width: whole.Width, Shape: whole.Shape}
	p.Box = reshard.Box{Offset: offset[:dims], Size: e.Shape[:dims]}
	p.at = e.Offsets[0]
	var err error
	if p.hashes, err = hex.DecodeString(whole.Hashes); err != nil || !p.Box.Within(whole.Shape) {
		return p, false
	}
	n := p.bytes()
	return p, e.Offsets[1]-e.Offsets[0] == int64(n) && len(p.hashes) == (n+chunkBytes-1)/chunkBytes*hashBytes
}
