package elastic

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// Element is what a tensor can be made of: numbers without pointers, so that a commit is a plain copy of memory.
type Element interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// State is everything that a worker must be able to return to: tensors, other values, the step, the place in the
// data and the ledger of consumed samples. They are one unit: committed, restored and sent together, or not at all.
//
// Register everything before Run, in the same way on every worker. What is registered must be the same on all ranks after each
// step: a value of one rank alone is replaced by another's at the next regrouping. A State belongs to one goroutine.
type State struct {
	sampler *Sampler
	elastic *ElasticSampler // reads the data instead; nil = none
	life    uint64          // of the job, see checkpoint.Name
	step    uint64
	ledger  wire.Ledger
	tensors []tensor
	size    int // bytes of all tensors
	values  []value
	resets  []func(ctx context.Context, s *Session, before Place) error
	err     error // first wrong registration; Run returns it

	recording bool               // see Recording
	unsaid    []wire.LedgerEpoch // what this rank has recorded since the last commit

	held  *snapshot // newest commit, nil = none
	spare *snapshot // where the next one is written, so that held stays whole until the new one is; nil = see blank
	named bool      // the hash of held is known
	warm  bool      // held was fetched aside and is not in the tensors yet
	shelf *shelf    // where held lies for others

	disk    *disk            // where a state lies if nobody holds a commit; nil = nowhere
	resumed *checkpoint.Name // the checkpoint that this job began with; nil = none

	partial *snapshot // what was fetched aside and is no commit yet
	known   []mark    // of the leaves of partial; zero = unknown
}

type tensor struct {
	name, kind string
	at         int    // where it begins in a snapshot
	memory     []byte // of the registered slice
}

type value struct {
	name string
	Handler
}

// NewState returns a state that reads its data in the order of sampler; nil = a program without a data set.
func NewState(sampler *Sampler) *State {
	if sampler == nil {
		sampler = NewSampler(0, 0)
	}
	return &State{sampler: sampler, life: 1, ledger: wire.Ledger{Samples: sampler.samples}, shelf: newShelf()}
}

// Deal has the state read its data in the order of another sampler, while it is registered.
func (s *State) Deal(with *Sampler) {
	s.sampler, s.ledger.Samples = with, with.samples
}

// Sample has the state read its data with an ElasticSampler.
func (s *State) Sample(with *ElasticSampler) {
	if with == nil || s.elastic != nil || s.sampler.samples > 0 {
		s.err = errors.Join(s.err, errors.New("a state has one sampler"))
		return
	}
	s.elastic, s.ledger.Samples = with, with.samples
}

// Tensor makes the elements of t part of the state under a name. Restoring writes into t, so the program must keep
// using this slice and not another one. Its length stays: members agree on it before anything is sent. What grows is a value,
// see State.Handle.
func Tensor[T Element](s *State, name string, t []T) {
	s.claim(name)
	var zero T
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t))), len(t)*int(unsafe.Sizeof(zero)))
	s.tensors = append(s.tensors, tensor{name: name, kind: fmt.Sprintf("%T", zero), at: s.size, memory: b})
	s.size += len(b)
}

func (s *State) claim(name string) {
	taken := false
	for _, t := range s.tensors {
		taken = taken || t.name == name
	}
	for _, v := range s.values {
		taken = taken || v.name == name
	}
	if taken {
		s.err = errors.Join(s.err, fmt.Errorf("%q is registered twice", name))
	}
}

// Step is the number of steps that this state has behind it.
func (s *State) Step() uint64 { return s.step }

// Cursor is the place in the data; with an ElasticSampler, the epoch and how many of its samples were consumed as of the last commit.
func (s *State) Cursor() Cursor {
	if e := s.elastic; e != nil {
		return Cursor{Epoch: e.epoch, Position: e.done.count()}
	}
	return s.sampler.Cursor()
}

// Committed names the newest commit that this worker holds; Generation 0 = none. Hash is empty until a Sync needed it.
func (s *State) Committed() wire.Commit {
	if s.held == nil || s.held.tentative {
		return wire.Commit{}
	}
	c := wire.Commit{Generation: s.held.generation, Step: s.held.step}
	if s.named {
		c.Hash = s.held.digest().String()
	}
	return c
}

// Ledger is the account of consumed samples; after Run has returned nil it is that of the last commit.
func (s *State) Ledger() wire.Ledger {
	l := s.ledger
	l.Epochs = append([]wire.LedgerEpoch(nil), l.Epochs...)
	return l
}
