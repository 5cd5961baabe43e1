package spec_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

const smallSpec = `{"name":"cifar","command":["python","train.py"],"workers":{"min":2,"max":8}}`

func TestParseSpecAccepts(t *testing.T) {
	s, bad := spec.Parse([]byte(smallSpec))
	if len(bad) > 0 || s.Name != "cifar" || s.Workers != (spec.Workers{2, 8}) || s.Recovery != "" {
		t.Errorf("got %+v, %v; want it as written", s, bad)
	}
	off := strings.Replace(smallSpec, "{", `{"health":{"hang":"0s"},"elastic":{"resetLimit":0},`, 1)
	if s, bad := spec.Parse([]byte(off)); len(bad) > 0 || s.Elastic.ResetLimit == nil || *s.Elastic.ResetLimit != 0 {
		t.Errorf("got %+v, %v; want no regroup and no hang", s, bad)
	}
	full, err := json.Marshal(eventstest.SampleJob())
	if err != nil {
		t.Fatal(err)
	}
	if s, bad := spec.Parse(full); len(bad) > 0 || !reflect.DeepEqual(s, eventstest.SampleJob()) {
		t.Errorf("got %+v, %v", s, bad)
	}
	if bad := eventstest.SampleJob().WithDefaults().Check(); len(bad) > 0 {
		t.Error(bad)
	}
}

func TestParseSpecErrors(t *testing.T) {
	const rest = `"command":["x"],"workers":{"min":1,"max":1}`
	with := func(field string) string { return `{"name":"a",` + rest + `,` + field + `}` }
	for in, want := range map[string]string{
		"":                            "unexpected end",
		"null":                        "the spec is empty",
		"7":                           "must be an object, got 7",
		"{} {}":                       "after top-level value",
		"\xff":                        "UTF-8",
		"{\n \"name\": }":             "invalid character",
		`{"name":"","command":["x"]}`: "workers.min: is 0, must be at least 1",
		`{` + rest + `}`:              "name: name is empty",
		`{"name":"A",` + rest + `}`:   `name: name "A" contains "A"`,
		`{"name":"` + strings.Repeat("a", 59) + `",` + rest + `}`:       "name: has 59 characters, at most 58",
		`{"name":"a","name":"b",` + rest + `}`:                          "name: is given twice",
		`{"name":"a","command":[],"workers":{"min":1,"max":1}}`:         "command: is empty",
		`{"name":"a","command":["x"],"workers":{"min":2,"max":1}}`:      "workers.max: is 1, must be at least workers.min (2)",
		`{"name":"a","command":["x"],"workers":{"min":1,"max":100001}}`: "workers.max: is 100001, at most 100000",
		`{"name":"a","command":["x"],"workers":{"min":"two","max":1}}`:  `workers.min: must be a whole number, got the text "two"`,
		`{"name":"a","command":["x"],"workers":{"min":1.5,"max":2}}`:    "workers.min: must be a whole number, got 1.5",
		`{"name":"a","command":"x","workers":{"min":1,"max":1}}`:        `command: must be a list, got the text "x"`,
		`{"name":"a","command":["x",7],"workers":{"min":1,"max":1}}`:    "command[1]: must be text, got 7",
		`{"name":"a","command":["x",null],"workers":{"min":1,"max":1}}`: "command[1]: is null",
		with(`"wokdir":"/x"`):                               `wokdir: unknown field (did you mean "workdir"?)`,
		with(`"Labels":{}`):                                 `Labels: unknown field (did you mean "labels"?)`,
		with(`"stop":{"grce":"1s"}`):                        `stop.grce: unknown field (did you mean "grace"?)`,
		with(`"zzzzzz":1`):                                  "zzzzzz: unknown field",
		with(`"workdir":"x"`):                               `workdir: "x" is not absolute`,
		with(`"version":"v2"`):                              `version: "v2" is not understood`,
		with(`"recovery":"magic"`):                          `recovery: "magic" is neither`,
		with(`"failures":{"max":-1}`):                       "failures.max: is -1, must be 0",
		with(`"failures":{"per":"1 hour"}`):                 `failures.per: "1 hour" is not a duration: write 500ms`,
		with(`"failures":{"per":3600}`):                     "failures.per: must be a time with its unit, got 3600: write 3600s, or 500ms, 1h",
		with(`"stop":{"grace":"0s"}`):                       `stop.grace: "0s" is not more than 0`,
		with(`"stop":{"grace":"-1s"}`):                      `stop.grace: "-1s" is not more than 0`,
		with(`"processes":{"spares":-1}`):                   "processes.spares: is -1, must be 0 (none) to 1024",
		with(`"processes":{"spares":1}`):                    "processes.spares: is 1, but \"x\" is no Python interpreter",
		with(`"processes":{"store":"x"}`):                   "processes.store: \"x\" is neither",
		with(`"processes":{"preload":["a"]}`):               "processes.preload: has an effect with processes.spares alone",
		with(`"processes":{"spareContexts":true}`):          "processes.spareContexts: has an effect with processes.spares alone",
		with(`"processes":{"awaitSpares":true}`):            "processes.awaitSpares: has an effect with processes.spares alone",
		with(`"processes":{"preload":["a b"],"spares":0}`):  "processes.preload[0]: \"a b\" is no name of a module",
		with(`"failures":{"sameStep":-1}`):                  "failures.sameStep: is -1, must be 1 to 1000",
		with(`"failures":{"sameStep":1001}`):                "failures.sameStep: is 1001, must be 1 to 1000",
		with(`"elastic":{"resetLimit":-1}`):                 "elastic.resetLimit: is -1, must be 0",
		with(`"elastic":{"multipleOf":-2}`):                 "elastic.multipleOf: is -2, must be 0 or more: 2 allows 2, 4",
		with(`"elastic":{"multipleOf":100001}`):             "elastic.multipleOf: is 100001, at most 100000 are allowed (limit workers)",
		with(`"elastic":{"timeout":"0s"}`):                  `elastic.timeout: "0s" is not more than 0`,
		with(`"health":{"hang":"-5m"}`):                     `health.hang: "-5m" is not more than 0`,
		with(`"health":{"hang":"900ms"}`):                   "health.hang: is 900ms, must be at least 10s, or 0",
		with(`"stop":{"signal":"SIGTRM"}`):                  `did you mean "SIGTERM"?`,
		with(`"stop":{"signal":"SIGKILL"}`):                 `stop.signal: "SIGKILL" is not one of SIGTERM`,
		with(`"env":{"1A":"x"}`):                            "env.1A: \"1A\" is not a legal variable name",
		with(`"env":{"REGROUP_JOB":"x"}`):                   "env.REGROUP_JOB: is set by the agent",
		with(`"env":{"RANK":"0"}`):                          "env.RANK: is set by the agent",
		with(`"env":{"HOROVOD_LOCAL_RANK":"0"}`):            "env.HOROVOD_LOCAL_RANK: is set by the agent",
		with(`"env":{"A":"\u0000"}`):                        "env.A: holds a NUL",
		with(`"env":{"A":1}`):                               "env.A: must be text, got 1",
		with(`"gpu":null`):                                  "gpu: has no fields: write gpu: {}",
		with(`"gpu":"H100"`):                                "gpu: must be an object, got the text \"H100\"",
		with(`"gpu":{"count":2}`):                           "gpu.count: unknown field",
		with(`"gpu":{"model":"Any"}`):                       "gpu.model: is \"Any\": leave the model out",
		with(`"gpu":{"model":"none"}`):                      "gpu.model: is \"none\": leave gpu out",
		with(`"gpu":{"model":"8"}`):                         "gpu.model: is \"8\": each worker has one GPU",
		with(`"gpu":{"model":"H100:8"}`):                    "gpu.model: \"H100:8\" is no model: write words of its name",
		with(`"gpu":{"memory":"80G"}`):                      "gpu.memory: \"80G\" is no memory of a GPU: write 80GB",
		with(`"gpu":{"memory":80}`):                         "gpu.memory: must be text, got 80",
		with(`"gpu":{},"env":{"CUDA_VISIBLE_DEVICES":"0"}`): "env.CUDA_VISIBLE_DEVICES: is given, and gpu too",
		with(`"data":{"samples":-1}`):                       "data.samples: must be a whole number that is not negative, got -1",
	} {
		_, bad := spec.Parse([]byte(in))
		found := false
		for _, f := range bad {
			found = found || strings.Contains(f.String(), want)
		}
		if !found {
			t.Errorf("%s:\n got %v\nwant %s", in, bad, want)
		}
		if strings.HasPrefix(in, `{"name":"a",`+rest) && len(bad) != 1 {
			t.Errorf("%s: %d findings, want one: %v", in, len(bad), bad)
		}
	}
	if _, bad := spec.Parse([]byte("{\n \"name\": }")); bad[0].Line != 2 || bad[0].Column != 10 {
		t.Errorf("position of the syntax error is %d:%d, want 2:10", bad[0].Line, bad[0].Column)
	}
}

// TestMultiples: the numbers of workers are multiples of elastic.multipleOf, and every error names
// its field and the fix.
func TestMultiples(t *testing.T) {
	for _, c := range []struct {
		min, max, of int
		want         []string
	}{
		{2, 8, 0, nil},
		{3, 7, 1, nil},
		{2, 8, 2, nil},
		{4, 4, 4, nil},
		{1, 8, 2, []string{"workers.min: is 1, must be a multiple of elastic.multipleOf (2): write 2"}},
		{3, 7, 2, []string{
			"workers.min: is 3, must be a multiple of elastic.multipleOf (2): write 2 or 4",
			"workers.max: is 7, must be a multiple of elastic.multipleOf (2): write 6 or 8",
		}},
		{60_000, 99_999, 60_000, []string{"workers.max: is 99999, must be a multiple of elastic.multipleOf (60000): write 60000"}},
		{0, 3, 2, []string{"workers.min: is 0, must be at least 1", "workers.max: is 3, must be a multiple of elastic.multipleOf (2): write 2 or 4"}},
		{4, 3, 2, []string{
			"workers.max: is 3, must be at least workers.min (4)",
			"workers.max: is 3, must be a multiple of elastic.multipleOf (2): write 2 or 4",
		}},
		{2, 100_001, 2, []string{"workers.max: is 100001, at most 100000 are allowed (limit workers)"}},
		{1, 3, 1 << 62, []string{"elastic.multipleOf: is 4611686018427387904, at most 100000 are allowed (limit workers)"}},
	} {
		s := spec.Job{Name: "a", Command: []string{"x"}, Workers: spec.Workers{Min: c.min, Max: c.max}, Elastic: spec.Elastic{MultipleOf: c.of}}
		var got []string
		for _, f := range s.WithDefaults().Check() {
			got = append(got, f.String())
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d:%d in multiples of %d:\n got %q\nwant %q", c.min, c.max, c.of, got, c.want)
		}
	}
	for of, want := range map[int]int{0: 7, 1: 7, 2: 6, 4: 4, 7: 7, 8: 0} {
		if got := (spec.Elastic{MultipleOf: of}).Whole(7); got != want {
			t.Errorf("of 7 workers a generation in multiples of %d has %d, want %d", of, got, want)
		}
	}
}

// TestSpecLimits: excessive values are refused with the field and the limit.
func TestSpecLimits(t *testing.T) {
	for name, c := range map[string]struct {
		path, limit string
		change      func(*spec.Job)
	}{
		"workers":            {"workers.max", limits.Workers.Name, func(s *spec.Job) { s.Workers.Max = 1 << 40 }},
		"failures":           {"failures.max", limits.Failures.Name, func(s *spec.Job) { s.Failures.Max = ptr(1 << 40) }},
		"samples":            {"data.samples", limits.Samples.Name, func(s *spec.Job) { s.Data.Samples = 1 << 63 }},
		"nodes times slots":  {"rendezvous.nodes.max", limits.Workers.Name, rendezvousOf(1<<62, 4)},
		"overflow to small":  {"rendezvous.nodes.max", limits.Workers.Name, rendezvousOf(1<<61+1, 8)},
		"too many to a node": {"rendezvous.workersPerNode", limits.Slots.Name, rendezvousOf(4, 1<<62)},
	} {
		s := eventstest.SampleJob()
		c.change(&s)
		found := ""
		for _, f := range s.WithDefaults().Check() {
			if f.Path == c.path {
				found += f.Message
			}
		}
		if !strings.Contains(found, "limit "+c.limit) {
			t.Errorf("%s: found %q about %s, want limit %s", name, found, c.path, c.limit)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func rendezvousOf(nodes, each int) func(*spec.Job) {
	return func(s *spec.Job) {
		s.Workers = spec.Workers{}
		s.Rendezvous = &spec.Rendezvous{Nodes: spec.NodeRange{Min: 1, Max: nodes}, WorkersPerNode: each}
	}
}

// TestSyntaxErrorsCountCharacters tests that columns count characters and not bytes.
func TestSyntaxErrorsCountCharacters(t *testing.T) {
	f := spec.CheckSyntax([]byte("{\n\"名前\": x}"))
	if f == nil || f.Line != 2 || f.Column != 7 {
		t.Errorf("found %+v, want line 2, column 7", f)
	}
}
