package cloudevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
)

// stopHeaders returns the headers of a command as a plain client writes them.
func stopHeaders() map[string][]string {
	return map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"42"}, "ce-source": {"/client/zoe"}, "ce-type": {"dev.regroup.job.stop.v1"},
	}
}

const stopData = `{"job":"cifar-1a2b","reason":"enough"}`

func TestBinaryMessage(t *testing.T) {
	e := events.Event{
		ID: "01JD", Source: "/regroup/registry", Entity: "cifar-1a2b", Number: 12, Cause: "id é 100%", Trace: sampleTrace,
		Time: time.Date(2026, 11, 21, 12, 31, 30, 5e8, time.FixedZone("", 7200)), Body: events.JobFinishing{Job: "cifar-1a2b"},
	}
	m, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"ce-specversion": "1.0", "ce-id": "01JD", "ce-source": "/regroup/registry", "ce-type": "dev.regroup.job.finishing.v1",
		"ce-subject": "cifar-1a2b", "ce-time": "2026-11-21T10:31:30.5Z", "ce-datacontenttype": "application/json",
		"ce-causationid": "id%20%C3%A9%20100%25", "ce-sequence": "00000000000000000012", "ce-partitionkey": "cifar-1a2b",
		"ce-traceparent": sampleTrace, "traceparent": sampleTrace,
	}
	got := map[string]string{}
	for k, v := range m.Header {
		got[k] = v[0]
	}
	if !maps.Equal(got, want) {
		t.Errorf("headers\n got %v\nwant %v", got, want)
	}
	if m.Subject != "regroup.evt.job.cifar-1a2b.finishing" || m.ID != "/regroup/registry|01JD" || string(m.Data) != `{"job":"cifar-1a2b"}` {
		t.Errorf("subject %q, id %q, data %s", m.Subject, m.ID, m.Data)
	}
}

func TestStructuredMessage(t *testing.T) {
	e := events.Event{ID: "1", Source: "/client/zoe", Body: events.JobStop{Job: "cifar-1a2b"}}
	m, err := EncodeStructured(e)
	if err != nil {
		t.Fatal(err)
	}
	if ct := m.Header["Content-Type"]; !slices.Equal(ct, []string{"application/cloudevents+json"}) || m.Subject != "regroup.cmd.job.stop" {
		t.Errorf("content type %q on subject %q", ct, m.Subject)
	}
	var doc map[string]any
	if err := json.Unmarshal(m.Data, &doc); err != nil {
		t.Fatal(err)
	}
	if doc["specversion"] != "1.0" || doc["type"] != "dev.regroup.job.stop.v1" || doc["data"].(map[string]any)["job"] != "cifar-1a2b" {
		t.Errorf("document %s", m.Data)
	}
	for k := range m.Header {
		if strings.HasPrefix(k, "ce-") {
			t.Errorf("structured mode has the header %s", k)
		}
	}
}

func TestHeaderInjectionIsImpossible(t *testing.T) {
	e := events.Event{ID: "1\r\nNats-Rollup: all", Source: "/client/zoe", Body: events.JobStop{Job: "cifar-1a2b"}}
	if m, err := Encode(e); !errors.Is(err, errcode.ErrInvalid) {
		t.Errorf("accepted %q: %v", m.ID, err)
	}
}

// TestIdentityIsKept: who passes a command on must not make another one of it. Jobs are named after
// source and id.
func TestIdentityIsKept(t *testing.T) {
	for _, e := range []events.Event{
		{ID: " 42 ", Source: "/client/zoe", Entity: " cifar-1a2b"},
		{ID: "42", Source: "/client/zoë", Entity: "☃ "},
		{ID: "42", Source: ` /client/LAB\zoe `},
		{ID: "42", Source: "/client/zo%C3%AB?a b#"},
		{ID: "42", Source: "HTTP://Example.com:80/a%2fb#c|d"},
		{ID: "42", Source: "mailto:zoe@example.com"},
		{ID: "42", Source: "http://"},
		{ID: "42", Source: "//"},
		{ID: "42", Source: "#"},
	} {
		e.Body = events.JobStop{Job: "cifar-1a2b"}
		for mode, encode := range map[string]func(events.Event) (broker.Message, error){"binary": Encode, "structured": EncodeStructured} {
			m, err := encode(e)
			if err != nil {
				t.Errorf("%s: %+v: %v", mode, e, err)
				continue
			}
			if again, err := Decode(m.Header, m.Data); err != nil || again != e {
				t.Errorf("%s: %+v came back as %+v, %v", mode, e, again, err)
			}
		}
	}
}

func TestMessageRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		e    events.Event
		code errcode.Code
		text string
	}{
		"no body":       {events.Event{ID: "1", Source: "/x"}, errcode.Invalid, "data"},
		"not a fact":    {events.Event{ID: "1", Source: "/x", Body: events.Ping{}}, errcode.Invalid, "type"},
		"no id":         {events.Event{Source: "/x", Body: events.JobStop{}}, errcode.Invalid, "id: is missing"},
		"no source":     {events.Event{ID: "1", Body: events.JobStop{}}, errcode.Invalid, "source: is missing"},
		"blank id":      {events.Event{ID: " ", Source: "/x", Body: events.JobStop{}}, errcode.Invalid, "id: is missing"},
		"blank source":  {events.Event{ID: "1", Source: " ", Body: events.JobStop{}}, errcode.Invalid, "source: is missing"},
		"blank entity":  {events.Event{ID: "1", Source: "/x", Entity: " ", Body: events.JobStop{}}, errcode.Invalid, "subject"},
		"wrong source":  {events.Event{ID: "1", Source: "1:2", Body: events.JobStop{}}, errcode.Invalid, "source"},
		"entity":        {events.Event{ID: "1", Source: "/x", Entity: "a.b", Body: events.JobFinishing{}}, errcode.Invalid, "subject"},
		"no entity":     {events.Event{ID: "1", Source: "/x", Body: events.JobFinishing{}}, errcode.Invalid, "subject"},
		"not a number":  {events.Event{ID: "1", Source: "/x", Entity: "a", Body: events.WorkerReady{StepMS: nan()}}, errcode.Invalid, "data"},
		"large command": {events.Event{ID: "1", Source: "/x", Body: events.JobStop{Reason: strings.Repeat("x", limits.Command.Max)}}, errcode.TooLarge, "65536"},
	} {
		_, err := Encode(c.e)
		if errcode.Of(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v (%s), want %s with %q", name, err, errcode.Of(err), c.code, c.text)
		}
	}
	large := events.Event{ID: "1", Source: "/x", Entity: "a", Body: events.RoundClosed{Reason: strings.Repeat("x", limits.Command.Max)}}
	if _, err := Encode(large); err != nil {
		t.Errorf("facts are not bounded here: %v", err)
	}
}

func nan() float64 { z := 0.0; return z / z }

func TestDecodeTolerates(t *testing.T) {
	with := func(change func(map[string][]string)) map[string][]string {
		h := stopHeaders()
		change(h)
		return h
	}
	doc := `{"specversion":"1.0","id":"42","source":"/client/zoe","type":"dev.regroup.job.stop.v1","data":` + stopData + `}`
	for name, c := range map[string]struct {
		header map[string][]string
		data   string
	}{
		"plain":            {stopHeaders(), stopData},
		"odd case":         {map[string][]string{"Ce-Specversion": {"1.0"}, "CE-ID": {"42"}, "cE-sOURCE": {"/client/zoe"}, "Ce-Type": {"dev.regroup.job.stop.v1"}}, stopData},
		"quoted":           {with(func(h map[string][]string) { h["ce-id"] = []string{`"4\2"`} }), stopData},
		"percent":          {with(func(h map[string][]string) { h["ce-source"] = []string{"%2Fclient%2fzoe"} }), stopData},
		"lower content":    {map[string][]string{"content-type": {"Application/CloudEvents+JSON; charset=utf-8"}}, doc},
		"no headers":       {nil, doc},
		"foreign headers":  {map[string][]string{"Nats-Msg-Id": {"x"}, "Content-Type": {"application/json"}}, doc},
		"white space":      {nil, "\n " + doc + "\n"},
		"new data field":   {stopHeaders(), `{"job":"cifar-1a2b","reason":"enough","added_later":{"x":1}}`},
		"new extension":    {with(func(h map[string][]string) { h["ce-addedlater"] = []string{"%E2%98%83"} }), stopData},
		"parameters":       {with(func(h map[string][]string) { h["ce-datacontenttype"] = []string{"application/json; charset=utf-8"} }), stopData},
		"both modes":       {with(func(h map[string][]string) { h["Content-Type"] = []string{mediaStructured}; h["ce-id"] = []string{"%"} }), doc},
		"base64":           {nil, `{"specversion":"1.0","id":"42","source":"/client/zoe","type":"dev.regroup.job.stop.v1","data_base64":"eyJqb2IiOiJjaWZhci0xYTJiIiwicmVhc29uIjoiZW5vdWdoIn0="}`},
		"number attribute": {nil, strings.Replace(doc, `"id"`, `"retries":3,"urgent":true,"nothing":null,"id"`, 1)},
		"bad traceparent":  {with(func(h map[string][]string) { h["ce-traceparent"] = []string{"00-zz"} }), stopData},
		"odd sequence":     {with(func(h map[string][]string) { h["ce-sequence"] = []string{"a client's own"} }), stopData},
	} {
		e, err := Decode(c.header, []byte(c.data))
		want := events.Event{ID: "42", Source: "/client/zoe", Body: events.JobStop{Job: "cifar-1a2b", Reason: "enough"}}
		if err != nil || e != want {
			t.Errorf("%s: got %+v, %v", name, e, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	with := func(name, value string) map[string][]string {
		h := stopHeaders()
		if value == "" {
			delete(h, name)
		} else {
			h[name] = []string{value}
		}
		return h
	}
	for name, c := range map[string]struct {
		header map[string][]string
		data   string
		paths  []string
	}{
		"nothing":            {nil, "", []string{""}},
		"garbage":            {nil, "\x00\xff", []string{""}},
		"a list":             {nil, "[]", []string{""}},
		"an empty object":    {nil, "{}", []string{"id", "source", "specversion", "type"}},
		"no id":              {with("ce-id", ""), stopData, []string{"id"}},
		"no source":          {with("ce-source", ""), stopData, []string{"source"}},
		"blank":              {with("ce-id", "%20"), stopData, []string{"id"}},
		"blank source":       {with("ce-source", "%20"), stopData, []string{"source"}},
		"blank subject":      {with("ce-subject", "%20"), stopData, []string{"subject"}},
		"not a reference":    {with("ce-source", "1:2"), stopData, []string{"source"}},
		"no specversion":     {with("ce-specversion", ""), stopData, []string{"specversion"}},
		"old specversion":    {with("ce-specversion", "0.3"), stopData, []string{"specversion"}},
		"bad UTF-8":          {with("ce-id", "%FF"), stopData, []string{"id"}},
		"bad percent":        {with("ce-id", "100%"), stopData, []string{"id"}},
		"not hexadecimal":    {with("ce-id", "%+1"), stopData, []string{"id"}},
		"line end":           {with("ce-id", "a%0D%0Ab"), stopData, []string{"id"}},
		"time":               {with("ce-time", "yesterday"), stopData, []string{"time"}},
		"content type":       {with("ce-datacontenttype", "text/plain"), stopData, []string{"datacontenttype"}},
		"extension name":     {with("ce-my_ext", "x"), stopData, []string{"my_ext"}},
		"given twice":        {with("CE-ID", "43"), stopData, []string{"id"}},
		"batch":              {map[string][]string{"Content-Type": {"application/cloudevents-batch+json"}}, "[]", []string{"Content-Type"}},
		"other format":       {map[string][]string{"Content-Type": {"application/cloudevents+avro"}}, "{}", []string{"Content-Type"}},
		"no data":            {stopHeaders(), "", []string{"data"}},
		"null data":          {stopHeaders(), "null", []string{"data"}},
		"trailing garbage":   {stopHeaders(), stopData + "x", []string{"data"}},
		"wrong types":        {stopHeaders(), `{"job":7,"reason":[],"now":"yes"}`, []string{"data.job", "data.now", "data.reason"}},
		"illegal id":         {stopHeaders(), `{"job":"a.b"}`, []string{"data.job"}},
		"everything at once": {map[string][]string{"ce-type": {"dev.regroup.job.stop.v1"}, "ce-time": {"x"}}, `{"now":1}`, []string{"data.now", "id", "source", "specversion", "time"}},
		"fact entity":        {map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/x"}, "ce-type": {"dev.regroup.job.finishing.v1"}, "ce-subject": {"A B"}, "ce-sequence": {"-1"}}, `{"job":"a"}`, []string{"sequence", "subject"}},
	} {
		_, err := Decode(c.header, []byte(c.data))
		var paths []string
		for _, f := range errcode.FieldErrorsOf(err) {
			paths = append(paths, f.Path)
			if f.Message == "" {
				t.Errorf("%s: finding about %s without a message", name, f.Path)
			}
		}
		slices.Sort(paths)
		if !errors.Is(err, errcode.ErrInvalid) || errcode.Of(err) != errcode.Invalid || !slices.Equal(paths, c.paths) {
			t.Errorf("%s: got findings %q (%v), want about %q", name, paths, err, c.paths)
		}
	}
}

func TestDecodeKeepsTheEnvelopeOfRefusedEvents(t *testing.T) {
	unknown := stopHeaders()
	unknown["ce-type"] = []string{"dev.regroup.job.stopp.v1"}
	e, err := Decode(unknown, []byte(stopData))
	if !errors.Is(err, events.ErrUnknownType) || errcode.Of(err) != errcode.Invalid || e.ID != "42" || e.Source != "/client/zoe" || e.Body != nil {
		t.Errorf("unknown type: %+v, %v", e, err)
	}
	if f := errcode.FieldErrorsOf(err); len(f) != 1 || !strings.Contains(f[0].Hint, "dev.regroup.job.stop.v1") {
		t.Errorf("unknown type: findings %v, want a suggestion", f)
	}
	e, err = Decode(stopHeaders(), fmt.Appendf(nil, `{"job":"a","reason":%q}`, strings.Repeat("x", limits.Command.Max)))
	if errcode.Of(err) != errcode.TooLarge || e.ID != "42" {
		t.Errorf("too large: %+v, %v", e, err)
	}
	e, err = Decode(stopHeaders(), []byte(`{"job":[]}`))
	if errors.Is(err, events.ErrUnknownType) || errcode.Of(err) != errcode.Invalid || e.ID != "42" || e.Source != "/client/zoe" {
		t.Errorf("misfit: %+v, %v", e, err)
	}
}

func TestSubmitReportsAllErrors(t *testing.T) {
	h := stopHeaders()
	h["ce-type"] = []string{"dev.regroup.job.submit.v1"}
	_, err := Decode(h, []byte(`{"spec":{"name":"UPPER","command":[],"workers":{"min":3,"mx":2},"image":"x"}}`))
	var fe *errcode.ValidationError
	if !errors.As(err, &fe) || errcode.Of(err) != errcode.Invalid {
		t.Fatalf("got %v", err)
	}
	var paths []string
	for _, f := range fe.Fields {
		paths = append(paths, f.Path)
	}
	slices.Sort(paths)
	if want := []string{"command", "image", "name", "workers.max", "workers.mx"}; !slices.Equal(paths, want) {
		t.Errorf("findings about %q, want %q", paths, want)
	}
	for _, bad := range []string{`{}`, `{"spec":null}`, `[]`, `{"spec":[]}`, `{`} {
		if _, err := Decode(h, []byte(bad)); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestPercentCoding(t *testing.T) {
	for _, s := range []string{"", "plain", "a b", `"quoted"`, "100%", "%41", "Zoë ☃ 🎉", "\\back\\", "~!{}|"} {
		coded := percentEncode(s)
		for i := range len(coded) {
			if c := coded[i]; c <= ' ' || c > '~' || c == '"' {
				t.Errorf("%q is coded with byte %#x", s, c)
			}
		}
		if back, wrong := percentDecode(coded); back != s || wrong != "" {
			t.Errorf("%q came back as %q %s", s, back, wrong)
		}
	}
	// Decoded once, and quotes need not be percent-coded.
	for in, want := range map[string]string{"%2541": "%41", `"a \"b\" c"`: `a "b" c`, "Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀"} {
		if got, wrong := percentDecode(in); got != want || wrong != "" {
			t.Errorf("%q decodes to %q %s, want %q", in, got, wrong, want)
		}
	}
}

func TestBodies(t *testing.T) {
	want := filled(t, events.MemberJoin{}).(events.MemberJoin)
	b, err := bodies.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := bodies.Decode[events.MemberJoin](b)
	if err != nil || got.Job != want.Job || got.Commit != want.Commit || !slices.Equal(got.Accused, want.Accused) {
		t.Errorf("got %+v, %v", got, err)
	}
	for in, path := range map[string]string{
		"": "", "null": "", "[]": "", "{}{}": "", string(b) + "x": "", "{\"node\":\"\xff\"}": "",
		`{"slots":1.5}`: "slots", `{"slots":99999999999999999999}`: "slots", `{"node":{}}`: "node",
	} {
		_, err := bodies.Decode[events.NodeHello]([]byte(in))
		if f := errcode.FieldErrorsOf(err); errcode.Of(err) != errcode.Invalid || len(f) != 1 || f[0].Path != path {
			t.Errorf("%q: %v, want one finding about %q", in, err, path)
		}
	}
	if _, err := bodies.Decode[events.PeersAnswer]([]byte(`{"addresses":{"x":"y"}}`)); errcode.Of(err) != errcode.Invalid {
		t.Errorf("a rank that is no number: %v", err)
	}
	if _, err := bodies.Decode[events.Ping]([]byte(`{}`)); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(b, bytes.TrimSpace(b)) {
		t.Error("a body ends with white space")
	}
}
