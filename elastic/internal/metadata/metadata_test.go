package metadata

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/elastic/samples"
)

func TestMetaIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := Metadata{Step: rapid.Uint64().Draw(r, "step"), Cursor: samples.Cursor{Epoch: 3, Position: 4}}
		for range rapid.IntRange(0, 4).Draw(r, "values") {
			m.Values = append(m.Values, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(r, "value"))
		}
		b, err := m.Encode()
		if err != nil {
			r.Fatal(err)
		}
		back, err := Decode(b)
		if err != nil || back.Step != m.Step || back.Cursor != m.Cursor || len(back.Values) != len(m.Values) {
			r.Fatalf("%+v became %+v: %v", m, back, err)
		}
		for i := range m.Values {
			if !bytes.Equal(m.Values[i], back.Values[i]) {
				r.Fatalf("value %d: %x became %x", i, m.Values[i], back.Values[i])
			}
		}
		if cut := rapid.IntRange(0, len(b)-1).Draw(r, "cut"); !errors.Is(second(Decode(b[:cut])), ErrDamaged) {
			r.Fatalf("%d of %d bytes are taken for all", cut, len(b))
		}
	})
}

func second[T any](_ T, err error) error { return err }
