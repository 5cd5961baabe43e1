package queue

import (
	"bytes"
	"reflect"
	"testing"
)

func TestRollsAreCompared(t *testing.T) {
	a, b, c := requestID{1, 10}, requestID{2, 20}, requestID{3, 30}
	other := requestID{1, 11}
	for name, x := range map[string]struct {
		lists     []requestList
		ready     []requestID
		differing []int64
	}{
		"in the order of the first rank": {[]requestList{{items: []requestID{b, a}}, {items: []requestID{a, b}}}, []requestID{b, a}, nil},
		"what one lacks waits":           {[]requestList{{items: []requestID{a, c}}, {items: []requestID{c}}}, []requestID{c}, nil},
		"a difference":                   {[]requestList{{items: []requestID{a, b}}, {items: []requestID{b, other}}}, []requestID{b}, []int64{1}},
		"a difference that one lacks":    {[]requestList{{items: []requestID{a}}, {items: []requestID{other}}, {}}, nil, nil},
		"who has joined is not asked":    {[]requestList{{joined: true}, {items: []requestID{a}}, {items: []requestID{a}}}, []requestID{a}, nil},
		"all have joined":                {[]requestList{{joined: true}, {joined: true}}, nil, nil},
	} {
		ready, differing := compare(x.lists)
		if !reflect.DeepEqual(ready, x.ready) || !reflect.DeepEqual(differing, x.differing) {
			t.Errorf("%s: %v and %v, want %v and %v", name, ready, differing, x.ready, x.differing)
		}
	}
}

func FuzzRoll(f *testing.F) {
	f.Add(encodeRequestList(requestList{joined: true, items: []requestID{{1, -2}, {3, 4}}}))
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := decodeRequestList(p)
		if err == nil && !bytes.Equal(encodeRequestList(r), p) {
			t.Fatalf("%x decodes to %+v", p, r)
		}
	})
}
