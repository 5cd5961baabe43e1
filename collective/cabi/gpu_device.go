//go:build cgo

package main

import (
	"errors"
	"sync"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
)

// gpuOptions are those of rg_gpu_open.
type gpuOptions struct {
	Device     int      `json:"device"`
	LocalRank  int      `json:"local_rank"`
	LocalSize  int      `json:"local_size"`
	ChunkBytes int      `json:"chunk_bytes"`
	Search     []string `json:"search"`
	Absent     string   `json:"absent"`
}

func (o *gpuOptions) validate() error {
	if o.Device < 0 || o.LocalRank < 0 || o.LocalSize < 0 || o.LocalRank >= max(o.LocalSize, 1) {
		return invalidf("device %d, local_rank %d of local_size %d", o.Device, o.LocalRank, o.LocalSize)
	}
	if o.ChunkBytes < 0 || o.ChunkBytes%64 != 0 {
		return invalidf("chunk_bytes %d is no multiple of 64", o.ChunkBytes)
	}
	return nil
}

// engine makes one where there was none. A GPU that cannot be used all ranks are told of.
func (o *gpuOptions) engine(c *collective.Communicator) (*nccl.Engine, error) {
	e := nccl.EngineOptions{LocalRank: o.LocalRank, LocalSize: o.LocalSize, ChunkBytes: o.ChunkBytes}
	e.Device, e.Absent = o.device()
	made, err := nccl.NewEngine(background, c, e)
	if err != nil && e.Device != nil {
		err = errors.Join(err, e.Device.Close(background))
	}
	return made, err
}

// device opens the GPU, or says why there is none.
func (o *gpuOptions) device() (*nccl.Device, error) {
	if o.Absent != "" {
		return nil, errors.New(o.Absent)
	}
	l, err := native.open(o.Search)
	if err != nil {
		return nil, err
	}
	return l.OpenDevice(background, o.Device)
}

// native is NCCL and the CUDA driver, loaded when a GPU is asked for first, and never unloaded.
var native loading

type loading struct {
	mu   sync.Mutex
	made *nccl.Library
}

// open tries again where it has failed before: the host may have loaded a framework since.
func (l *loading) open(search []string) (_ *nccl.Library, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		l.made, err = nccl.Open(nccl.Options{Search: search})
	}
	return l.made, err
}
