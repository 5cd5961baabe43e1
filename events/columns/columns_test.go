package columns_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events/columns"
)

// TestExample is that of the package's comment.
func TestExample(t *testing.T) {
	rows := []struct {
		name, host string
		port       int
	}{{"a", "x", 80}, {"b", "x", 80}, {"c", "y", 80}}
	got, err := json.Marshal(struct {
		Names columns.Texts       `json:"names"`
		Hosts columns.Runs        `json:"hosts"`
		Ports columns.Column[int] `json:"ports,omitempty"`
	}{
		columns.MakeTexts(3, func(i int) string { return rows[i].name }),
		columns.MakeRuns(3, func(i int) string { return rows[i].host }),
		columns.Make(3, func(i int) int { return rows[i].port }),
	})
	if want := `{"names":"a b c","hosts":{"values":"x y","counts":[2,1]},"ports":[80]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestRowsComeBack of whatever texts and numbers.
func TestRowsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.SampledFrom([]string{"", " ", "%", "%20", "a", "a b", "☃", "%%"}), 0, 6).Draw(t, "texts")
		n := len(texts)
		of := func(i int) string { return texts[i] }
		split, err := columns.Split[string](columns.MakeTexts(n, of), n)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := columns.Expand[string](columns.MakeRuns(n, of), n)
		if err != nil {
			t.Fatal(err)
		}
		numbers := columns.Make(n, func(i int) int { return len(texts[i]) })
		for i, text := range texts {
			if split.At(i) != text || runs.At(i) != text || numbers.At(i) != len(text) {
				t.Fatalf("row %d of %q: %q, %q, %d", i, texts, split.At(i), runs.At(i), numbers.At(i))
			}
		}
	})
}

// TestTablesThatDoNotFit are refused, not read beyond their end, and cost no memory.
func TestTablesThatDoNotFit(t *testing.T) {
	for name, r := range map[string]columns.Runs{
		"too many rows":    {Values: "x y", Counts: columns.Column[int]{2, 2}},
		"too few rows":     {Values: "x y", Counts: columns.Column[int]{1, 1}},
		"a negative run":   {Values: "x y", Counts: columns.Column[int]{-1, 4}},
		"an enormous run":  {Values: "x", Counts: columns.Column[int]{1 << 60}},
		"too few counts":   {Values: "x y z", Counts: columns.Column[int]{1, 2}},
		"too many values":  {Values: "x y z v", Counts: columns.Column[int]{1}},
		"values, no count": {Values: "x"},
	} {
		if c, err := columns.Expand[string](r, 3); err == nil {
			t.Errorf("%s: %q", name, c)
		}
	}
	if c, err := columns.Split[string]("a b", 3); err == nil {
		t.Errorf("two of three texts: %q", c)
	}
	if err := columns.Check(3, columns.Column[int]{1}, columns.Column[int]{1, 2}); err == nil {
		t.Error("two of three numbers are accepted")
	}
}
