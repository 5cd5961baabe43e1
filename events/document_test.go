package events

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func sampleDocument(size int) Document {
	state, err := json.Marshal(map[string]any{"view": NodeView{Node: "node-a", Slots: 8}, "pad": strings.Repeat("é", size)})
	if err != nil {
		panic(err)
	}
	return Document{
		Schema: DocumentSchema, Version: 7, State: state, Applied: []string{"/a|1", "/a|2"},
		Number: map[Family]uint64{FamilyNode: 3}, Outbox: []Message{{Subject: "s", ID: "i", Header: map[string][]string{"ce-id": {"1"}}, Data: []byte{0, 255}}},
	}
}

func TestDocumentRoundTrip(t *testing.T) {
	for _, size := range []int{0, compressOver, 1 << 20} {
		want := sampleDocument(size)
		b, err := EncodeDocument(want)
		if err != nil {
			t.Fatal(err)
		}
		if compressed := b[0] == 0; compressed != (size >= compressOver) || compressed && len(b) > size {
			t.Errorf("size %d is stored in %d bytes, compressed = %v", size, len(b), compressed)
		}
		got, err := DecodeDocument(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("size %d: got %+v, %v", size, got, err)
		}
		view, err := DecodeView[NodeView](b)
		if err != nil || view.Node != "node-a" || view.Slots != 8 {
			t.Errorf("size %d: view %+v, %v", size, view, err)
		}
	}
}

func TestDocumentRefusals(t *testing.T) {
	for in, code := range map[string]Code{
		"": Invalid, "{": Invalid, "\x00garbage": Invalid, "\x00": Invalid,
		`{"schema":2}`: Newer,
		// A newer one may have changed every field: it must still be told apart from garbage.
		`{"schema":2,"version":"x","applied":{}}`: Newer,
		`{"schema":1,"applied":{}}`:               Invalid,
	} {
		if _, err := DecodeDocument([]byte(in)); CodeOf(err) != code {
			t.Errorf("%q: %v, want %s", in, err, code)
		}
	}
	if _, err := DecodeView[NodeView]([]byte(`{"schema":1}`)); CodeOf(err) != Invalid {
		t.Errorf("a document without state: %v", err)
	}
}
