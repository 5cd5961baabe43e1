package screen

import (
	"bytes"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/waterfall"
)

const trace = "0af7651916cd43dd8448eb211c80319c"

func at(ms float64) time.Time { return t0.Add(time.Duration(ms * float64(time.Millisecond))) }

func spans() []waterfall.Span {
	s := func(id, parent, service, name string, from, to float64) waterfall.Span {
		return waterfall.Span{Trace: trace, ID: id, Parent: parent, Service: service, Name: name, Start: at(from), End: at(to)}
	}
	died := s("02", "01", "agent", "process worker.exited", 0, 3)
	died.Error = "killed by signal 9 (SIGKILL)"
	of := func(s waterfall.Span, rank, node, place string) waterfall.Span {
		s.Attributes = map[string]string{"regroup.rank": rank, "regroup.node": node}
		if place != "" {
			s.Attributes["regroup.place"] = place
		}
		return s
	}
	return []waterfall.Span{
		of(s("05", "01", "worker", "sync", 24, 30), "1", "node-a", "node-a/1"), of(died, "0", "node-b", ""),
		of(s("08", "01", "worker", "sync", 25, 31), "11", "node-with-a-long-name.example", "node-with-a-long-name.example/3"),
		of(s("09", "01", "agent", "regroup launch", 24, 24), "-1", "node-a", "node-a/0"),
		s("01", "", "registry", "incident worker-failed", 0, 41),
		s("03", "01", "rendezvous", "judge", 4, 12),
		s("04", "03", "rendezvous", "seal g2", 10, 12),
		s("06", "ff", "worker", "first step", 30, 41),
		s("07", "06", "worker", "all-reduce with a name that is far too long to be shown in whole", 31, 40),
		s("03", "01", "rendezvous", "judge, told again", 4, 90),
	}
}

func TestWaterfall(t *testing.T) {
	var b bytes.Buffer
	for _, d := range []Waterfall{{Width: 110}, {Width: 110, ASCII: true}} {
		if err := d.Draw(&b, "incident 1", spans()); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	long := []waterfall.Span{
		{Trace: trace, ID: "01", Service: "registry", Name: "incident", Start: at(0), End: at(40)},
		{Trace: trace, ID: "02", Parent: "01", Service: "worker", Name: "generation g2", Start: at(20), End: at(3600000)},
		{Trace: trace, ID: "03", Parent: "01", Service: "worker", Name: "worker process", Start: at(50), End: at(3600000)},
		{Trace: trace, ID: "04", Parent: "01", Service: "worker", Name: "worker process", Start: at(-5000), End: at(3600000)},
		{Trace: trace, ID: "05", Parent: "01", Service: "rendezvous", Name: "rendezvous g2", Start: at(-1), End: at(10)},
	}
	for _, ascii := range []bool{false, true} {
		if err := (Waterfall{Width: 90, ASCII: ascii}).Draw(&b, "runs outlive the incident", long); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	if err := (Waterfall{Width: 80}).Draw(&b, "incident 2", nil); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/waterfall.txt", b.String())
}
