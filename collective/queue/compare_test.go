package queue

import (
	"bytes"
	"reflect"
	"testing"
)

func TestRollsAreCompared(t *testing.T) {
	a, b, c := rollItem{1, 10}, rollItem{2, 20}, rollItem{3, 30}
	other := rollItem{1, 11}
	for name, x := range map[string]struct {
		rolls     []roll
		ready     []rollItem
		differing []int64
	}{
		"in the order of the first rank": {[]roll{{items: []rollItem{b, a}}, {items: []rollItem{a, b}}}, []rollItem{b, a}, nil},
		"what one lacks waits":           {[]roll{{items: []rollItem{a, c}}, {items: []rollItem{c}}}, []rollItem{c}, nil},
		"a difference":                   {[]roll{{items: []rollItem{a, b}}, {items: []rollItem{b, other}}}, []rollItem{b}, []int64{1}},
		"a difference that one lacks":    {[]roll{{items: []rollItem{a}}, {items: []rollItem{other}}, {}}, nil, nil},
		"who has joined is not asked":    {[]roll{{joined: true}, {items: []rollItem{a}}, {items: []rollItem{a}}}, []rollItem{a}, nil},
		"all have joined":                {[]roll{{joined: true}, {joined: true}}, nil, nil},
	} {
		ready, differing := compare(x.rolls)
		if !reflect.DeepEqual(ready, x.ready) || !reflect.DeepEqual(differing, x.differing) {
			t.Errorf("%s: %v and %v, want %v and %v", name, ready, differing, x.ready, x.differing)
		}
	}
}

func FuzzRoll(f *testing.F) {
	f.Add(encodeRoll(roll{joined: true, items: []rollItem{{1, -2}, {3, 4}}}))
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := decodeRoll(p)
		if err == nil && !bytes.Equal(encodeRoll(r), p) {
			t.Fatalf("%x decodes to %+v", p, r)
		}
	})
}
