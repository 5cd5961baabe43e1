package tcpstore

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
)

// value is a stored value. Replies are written without the store's lock, so a value counts in the
// budget until neither the store nor a reply refers to it.
type value struct {
	data []byte // never changes, except by append
	cost int64
	refs atomic.Int32
}

// entryCost is what a key or a queued value costs beside its bytes: the value, its place in a map
// or a list, the header of the key.
const entryCost = 160

func (b *budget) newValue(data []byte) (*value, error) {
	cost := entryCost + int64(cap(data))
	if err := b.take(cost); err != nil {
		return nil, err
	}
	v := &value{data: data, cost: cost}
	v.refs.Store(1)
	return v, nil
}

func (v *value) retain() *value {
	v.refs.Add(1)
	return v
}

func (v *value) release(b *budget) {
	if v.refs.Add(-1) == 0 {
		b.give(v.cost)
	}
}

// append returns the value with data at its end. It changes the value in place unless a reply
// refers to it; the caller holds the store's lock, so no reply can begin to.
func (v *value) append(b *budget, data []byte) (*value, error) {
	need := len(v.data) + len(data)
	if v.refs.Load() == 1 && need <= cap(v.data) {
		v.data = append(v.data, data...)
		return v, nil
	}
	longer, err := b.newValue(make([]byte, 0, need+min(need/4, 1<<20)))
	if err != nil {
		return nil, err
	}
	longer.data = append(append(longer.data, v.data...), data...)
	v.release(b)
	return longer, nil
}

var errNumber = errors.New("the value is not a number")

// number parses a counter as C's strtoll: blanks may precede it, and what follows it is ignored.
func number(text []byte) (int64, error) {
	s := strings.TrimLeft(string(text[:min(len(text), 64)]), " \t\n\v\f\r")
	digits := 0
	if digits < len(s) && (s[0] == '-' || s[0] == '+') {
		digits++
	}
	end := digits
	for end < len(s) && '0' <= s[end] && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(s[:end], 10, 64)
	if err != nil || end == digits {
		return 0, errNumber
	}
	return n, nil
}

// sum adds with wrap-around.
func sum(a, b int64) int64 { return int64(uint64(a) + uint64(b)) }

func decimal(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
