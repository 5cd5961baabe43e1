// Package columns encodes long tables in JSON, a list of values for each field instead of an object
// for each row. A table is a struct whose fields are Columns, Texts and Runs:
//
//	type table struct {
//		Names columns.Texts       `json:"names"`
//		Hosts columns.Runs        `json:"hosts"`
//		Ports columns.Column[int] `json:"ports,omitempty"`
//	}
//
//	{"names": "a b c", "hosts": {"values": "x y", "counts": [2, 1]}, "ports": [80]}
//
// None of the types has a MarshalJSON: encoding/json would go over its result once more, which
// takes longer than all the rest. Tables of 40,000 rows are as small and about as fast as with an
// encoding by hand (docs/adr/0040-tables-are-columns.md).
package columns

import (
	"errors"
	"fmt"
	"strings"
)

// Column holds one value per row. One value alone stands for all rows, and none for zero values.
type Column[T comparable] []T

// Make returns the column of n rows.
func Make[T comparable](n int, value func(i int) T) Column[T] {
	c, same := make(Column[T], n), true
	for i := range c {
		c[i] = value(i)
		same = same && c[i] == c[0]
	}
	switch {
	case !same:
		return c
	case n == 0 || c[0] == *new(T):
		return nil
	}
	return c[:1]
}

// At returns the value of a row.
func (c Column[T]) At(i int) (v T) {
	switch len(c) {
	case 0:
		return v
	case 1:
		return c[0]
	}
	return c[i]
}

// Check returns an error if the column cannot be that of n rows.
func (c Column[T]) Check(n int) error {
	if len(c) > 1 && len(c) != n {
		return fmt.Errorf("a column of %d rows, there are %d", len(c), n)
	}
	return nil
}

// Check returns the first error of columns that cannot be those of n rows.
func Check(n int, all ...interface{ Check(n int) error }) error {
	for _, c := range all {
		if err := c.Check(n); err != nil {
			return err
		}
	}
	return nil
}

// Texts is a Column of texts as one text, the values separated by spaces. It is read several times
// as fast as a list. In values "%" is "%25" and a space is "%20"; an empty value is "%".
type Texts string

// MakeTexts returns the column of n rows.
func MakeTexts[T ~string](n int, value func(i int) T) Texts {
	if n == 0 {
		return ""
	}
	first, same, size := value(0), true, 0
	for i := range n {
		v := value(i)
		same = same && v == first
		size += len(v) + 1
	}
	switch {
	case same && first == "":
		return ""
	case same:
		n = 1
	}
	b := make([]byte, 0, size)
	for i := range n {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, escaped(string(value(i)))...)
	}
	return Texts(b)
}

func escaped(v string) string {
	switch {
	case v == "":
		return "%"
	case strings.IndexByte(v, ' ') >= 0 || strings.IndexByte(v, '%') >= 0:
		return escape.Replace(v)
	}
	return v
}

var (
	escape   = strings.NewReplacer("%", "%25", " ", "%20")
	unescape = strings.NewReplacer("%25", "%", "%20", " ", "%", "")
)

// Len returns the number of values.
func (t Texts) Len() int {
	if t == "" {
		return 0
	}
	return strings.Count(string(t), " ") + 1
}

// Split returns the column of n rows.
func Split[T ~string](t Texts, n int) (Column[T], error) {
	if t == "" {
		return nil, nil
	}
	c := make(Column[T], 0, min(n, len(t)))
	for v := range strings.SplitSeq(string(t), " ") {
		if len(c) == n {
			return nil, fmt.Errorf("a column of more than %d rows", n)
		}
		if strings.IndexByte(v, '%') >= 0 {
			v = unescape.Replace(v)
		}
		c = append(c, T(v))
	}
	return c, c.Check(n)
}

// Runs holds one text for each run of rows in which it is the same: two rows of "x" and one of "y"
// are the values x and y with the counts 2 and 1.
type Runs struct {
	Values Texts       `json:"values"`
	Counts Column[int] `json:"counts"`
}

// MakeRuns returns the runs of n rows.
func MakeRuns[T ~string](n int, value func(i int) T) Runs {
	var values []T
	var counts []int
	for i := range n {
		v := value(i)
		if last := len(values) - 1; last >= 0 && values[last] == v {
			counts[last]++
			continue
		}
		values, counts = append(values, v), append(counts, 1)
	}
	return Runs{
		Values: MakeTexts(len(values), func(i int) T { return values[i] }),
		Counts: Make(len(counts), func(i int) int { return counts[i] }),
	}
}

// Expand returns the column of n rows.
func Expand[T ~string](r Runs, n int) (Column[T], error) {
	runs := max(r.Values.Len(), len(r.Counts))
	if runs > n {
		return nil, fmt.Errorf("%d runs of %d rows", runs, n)
	}
	values, err := Split[T](r.Values, runs)
	if err = errors.Join(err, r.Counts.Check(runs)); err != nil {
		return nil, err
	}
	c := make(Column[T], 0, n)
	for i := range runs {
		count := r.Counts.At(i)
		if count < 1 || count > n-len(c) {
			return nil, fmt.Errorf("a run of %d rows, %d are left", count, n-len(c))
		}
		for range count {
			c = append(c, values.At(i))
		}
	}
	return c, c.Check(n)
}
