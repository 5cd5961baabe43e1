package workerprotocol

import (
	"math"
	"strings"
	"testing"
)

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		r    SpanReport
		want string
	}{
		{SpanReport{1, SpanGroupEnds, 600, 550}, ""},
		{SpanReport{1, SpanGroupConnects, 0, 0}, ""},
		{SpanReport{1, "lunch", 600, 550}, "name: must be"},
		{SpanReport{1, SpanGroupEnds, -1, 0}, "age_ms: -1"},
		{SpanReport{1, SpanGroupEnds, math.NaN(), 0}, "age_ms: NaN"},
		{SpanReport{1, SpanGroupEnds, 100e6, 0}, "age_ms: 1e+08"},
		{SpanReport{1, SpanGroupEnds, 600, 601}, "ms: 601"},
		{SpanReport{1, SpanGroupEnds, 600, math.NaN()}, "ms: NaN"},
	} {
		err := c.r.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.r, err, c.want)
		}
	}
}
