package cloudevent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/internal/golden"
)

func TestEveryRowRoundTrips(t *testing.T) {
	for _, row := range events.Catalog() {
		want := sampleEvent(t, row)
		for mode, encode := range map[string]func(events.Event) (broker.Message, error){"binary": Encode, "structured": EncodeStructured} {
			m, err := encode(want)
			if err != nil {
				t.Fatalf("%s %s: %v", row.Type, mode, err)
			}
			got, err := Decode(m.Header, m.Data)
			if err != nil {
				t.Fatalf("%s %s: %v", row.Type, mode, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s:\n got %+v\nwant %+v", row.Type, mode, got, want)
			}
			if row.Class == events.ClassFact && events.EntityOfFact(m.Subject) != want.Entity {
				t.Errorf("%s: subject %s does not name the entity", row.Type, m.Subject)
			}
		}
	}
}

// TestGolden: stored samples decode, and are encoded to the same form. -rewrite writes samples, for
// a new fact.
func TestGolden(t *testing.T) {
	for _, row := range events.Catalog() {
		path := filepath.Join("testdata", "golden", string(row.Type)+".json")
		sample, err := EncodeStructured(sampleEvent(t, row))
		if err != nil {
			t.Fatal(err)
		}
		golden.Update(t, path, indent(t, sample.Data))
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v: run go test ./events/cloudevent -run TestGolden -rewrite", err)
		}
		e, err := Decode(nil, stored)
		if err != nil {
			t.Errorf("%s no longer decodes: %v", path, err)
			continue
		}
		m, err := EncodeStructured(e)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		golden.Compare(t, path, indent(t, m.Data))
	}
}

// indent also sorts the names.
func indent(t *testing.T, b []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}
