package tcpstore

import (
	"errors"
	"sync/atomic"
)

// budget bounds the memory of a store. Memory is taken before it is allocated.
type budget struct {
	used atomic.Int64
	max  int64
}

var errMemory = errors.New("the store's memory is used up")

func (b *budget) take(n int64) error {
	if b.used.Add(n) > b.max {
		b.used.Add(-n)
		return errMemory
	}
	return nil
}

func (b *budget) give(n int64) { b.used.Add(-n) }
