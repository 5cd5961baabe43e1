package events

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/internal/golden"
)

func TestLimitsPage(t *testing.T) { golden.Compare(t, "../docs/limits.md", LimitsMarkdown()) }

// TestOverALimit: what is over one is refused, with the limit's name.
func TestOverALimit(t *testing.T) {
	long := strings.Repeat("x", LimitWord.Most+1)
	deep := strings.Repeat("[", LimitDepth.Most+1) + strings.Repeat("]", LimitDepth.Most+1)
	epochs := strings.Repeat(`{"epoch":1,"count":1,"sum":"1"},`, LimitEpochs.Most) + `{"epoch":2,"count":1,"sum":"1"}`
	names := map[string]float64{}
	for i := range LimitNames.Most + 1 {
		names[fmt.Sprint("loss-", i)] = 1
	}
	metrics, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	ranges := `"node-a/0-4095"` + strings.Repeat(`,"node-a/0-4095"`, 40_000)
	groups := `{"node":"a","slots":"0-4095"}` + strings.Repeat(`,{"node":"a","slots":"0-4095"}`, 30_000)
	for name, c := range map[string]struct {
		limit Limit
		err   error
	}{
		"slots of a hello":     {LimitSlots, decodeErr[NodeHello](`{"node":"a","slots":2000000000}`)},
		"slots of a heartbeat": {LimitSlots, decodeErr[Heartbeat](`{"node":"a","slots":5000}`)},
		"a slot of a place":    {LimitSlots, decodeErr[WorkerExited](`{"place":{"node":"a","slot":100000}}`)},
		"a range of slots":     {LimitSlots, decodeErr[PlacementSet](`{"places":["a/0-65535"]}`)},
		"40000 ranges":         {LimitWorkers, decodeErr[PlacementSet](`{"places":[` + ranges + `]}`)},
		"30000 groups":         {LimitWorkers, decodeErr[RoundSealed](`{"members":[` + groups + `]}`)},
		"an incarnation":       {LimitWord, decodeErr[WorkerExited](`{"incarnation":"` + long + `"}`)},
		"a hash":               {LimitWord, decodeErr[WorkerExited](`{"commit":{"hash":"` + long + `"}}`)},
		"an address":           {LimitWord, decodeErr[MemberJoin](`{"address":"` + long + `"}`)},
		"accused":              {LimitEntries, decodeErr[MemberJoin](`{"accused":[1` + strings.Repeat(",1", LimitEntries.Most) + `]}`)},
		"metrics":              {LimitNames, decodeErr[Progress](`{"metrics":` + string(metrics) + `}`)},
		"the name of a metric": {LimitWord, decodeErr[Progress](`{"metrics":{"` + long + `":1}}`)},
		"epochs":               {LimitEpochs, decodeErr[WorkerDone](`{"ledger":{"epochs":[` + epochs + `]}}`)},
		"depth":                {LimitDepth, decodeErr[JobStop](`{"reason":` + deep + `}`)},
		"depth of an envelope": {LimitDepth, eventErr(nil, `{"data":`+deep+`}`)},
		"an envelope":          {LimitEnvelope, eventErr(withHeader("ce-id", strings.Repeat("x", LimitEnvelope.Most+1)), stopData)},
		"an extension":         {LimitEnvelope, eventErr(withHeader("ce-extra", strings.Repeat("x", LimitEnvelope.Most+1)), stopData)},
		"a message":            {LimitMessage, eventErr(stopHeaders(), strings.Repeat("x", LimitMessage.Most+1))},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), "limit "+c.limit.Name) {
			t.Errorf("%s: %.200v, want limit %s", name, c.err, c.limit.Name)
		}
		if code := CodeOf(c.err); code != Invalid && code != TooLarge {
			t.Errorf("%s: code %s", name, code)
		}
	}
}

func decodeErr[B Body](data string) error {
	_, err := DecodeBody[B]([]byte(data))
	return err
}

func eventErr(h map[string][]string, data string) error {
	_, err := Decode(h, []byte(data))
	return err
}

func withHeader(name, value string) map[string][]string {
	h := stopHeaders()
	h[name] = []string{value}
	return h
}

// TestSpecLimits: what a job asks for is refused with the field and the limit.
func TestSpecLimits(t *testing.T) {
	for name, c := range map[string]struct {
		path, limit string
		change      func(*Spec)
	}{
		"workers":            {"workers.max", LimitWorkers.Name, func(s *Spec) { s.Workers.Max = 1 << 40 }},
		"failures":           {"failures.max", LimitFailures.Name, func(s *Spec) { s.Failures.Max = ptr(1 << 40) }},
		"samples":            {"data.samples", LimitSamples.Name, func(s *Spec) { s.Data.Samples = 1 << 63 }},
		"nodes times slots":  {"rendezvous.nodes.max", LimitWorkers.Name, crowdOf(1<<62, 4)},
		"overflow to small":  {"rendezvous.nodes.max", LimitWorkers.Name, crowdOf(1<<61+1, 8)},
		"too many to a node": {"rendezvous.workersPerNode", LimitSlots.Name, crowdOf(4, 1<<62)},
	} {
		s := sampleSpec()
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

func crowdOf(nodes, each int) func(*Spec) {
	return func(s *Spec) {
		s.Workers = Workers{}
		s.Rendezvous = &Rendezvous{External: true, Nodes: NodeRange{Min: 1, Max: nodes}, WorkersPerNode: each}
	}
}

// TestABombIsRefusedBeforeItGoesOff: 64 KiB that unpack to 64 MiB cost about their size.
func TestABombIsRefusedBeforeItGoesOff(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(bytes.Repeat([]byte(" "), 60<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Len() > LimitCommand.Most {
		t.Fatalf("the bomb has %d bytes", b.Len())
	}
	unknown := withHeader("Content-Encoding", "gzip")
	unknown["ce-type"] = []string{"dev.regroup.job.exploded.v1"}
	structured := map[string][]string{"Content-Type": {mediaStructured}, "Content-Encoding": {"gzip"}}
	for name, h := range map[string]map[string][]string{"binary": withHeader("Content-Encoding", "gzip"), "unknown": unknown, "structured": structured} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		e, err := Decode(h, b.Bytes())
		runtime.ReadMemStats(&after)
		if CodeOf(err) != TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		if name != "structured" && e.ID != "42" {
			t.Errorf("%s: nobody can be told: %+v", name, e)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 2<<20 {
			t.Errorf("%s: refusing it costs %d bytes", name, cost)
		}
	}
}

// TestADocumentThatUnpacksToTooMuchIsNeverStored: it could not be read again.
func TestADocumentThatUnpacksToTooMuchIsNeverStored(t *testing.T) {
	text, err := json.Marshal(strings.Repeat("x", LimitUnpacked.Most))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := EncodeDocument(Document{Schema: DocumentSchema, State: text}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("it is stored: %v", err)
	}
}

// TestEveryTextIsShortened puts far too much into every text of every body that there is: no new field can be forgotten.
func TestEveryTextIsShortened(t *testing.T) {
	bodies := []Body{
		NodeHello{},
		NodeBye{},
		NodeWelcome{},
		MemberJoin{},
		MemberWaiting{},
		MemberJoins{},
		MemberAnswers{},
		PeersQuery{},
		NodeEnter{},
		NodeExit{},
		NodeStanding{},
		RendezvousClose{},
		Heartbeat{},
		NoticeEnvelope{},
		Progress{},
		Abandon{},
		Gathering{},
		Launch{},
		Pong{},
	}
	for _, row := range Catalog() {
		if _, own := row.New().(JobSubmit); !own { // its spec is refused as a whole
			bodies = append(bodies, row.New())
		}
	}
	for _, b := range bodies {
		v := reflect.New(reflect.TypeOf(b)).Elem()
		v.Set(reflect.ValueOf(filled(t, b)))
		flood(v)
		data, err := EncodeBody(v.Interface().(Body))
		if err != nil {
			t.Fatal(err)
		}
		body, bad := decodeData(b, data, "")
		if len(bad) > 0 {
			t.Errorf("%s: %v", b.Type(), bad)
			continue
		}
		again, err := EncodeBody(body)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > 24<<10 {
			t.Errorf("%s: %d bytes came in and %d are kept", b.Type(), len(data), len(again))
		}
		if len(data) > 50_000 && !bytes.Contains(again, []byte("left out]")) {
			t.Errorf("%s: it is not said that something is left out", b.Type())
		}
	}
}

// flood fills every text with 100 KB.
func flood(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Type != reflect.TypeFor[Spec]() && (f.Tag.Get("bound") == "" || f.Tag.Get("bound") == "lines") {
				flood(v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			flood(v.Elem())
		}
	case reflect.Slice:
		switch v.Type() {
		case reflect.TypeFor[Places](), reflect.TypeFor[Roster]():
			return
		}
		for i := range v.Len() {
			flood(v.Index(i))
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(strings.Repeat("long ", 20_000))
		}
	}
}

// TestShorten: the limit is kept, what is short stays as it is, characters stay whole, and shortening twice changes nothing.
func TestShorten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text") + strings.Repeat(rapid.SampledFrom([]string{"x", "é", "訓", "🎉"}).Draw(t, "filler"), rapid.IntRange(0, 2000).Draw(t, "times"))
		most := rapid.IntRange(0, 2000).Draw(t, "most")
		got := Shorten(s, most)
		if len(got) > most || len(s) <= most && got != s || strings.ToValidUTF8(got, "") != strings.ToValidUTF8(s, "") && strings.ToValidUTF8(s, "?") == s && strings.ToValidUTF8(got, "?") != got {
			t.Fatalf("%d bytes of %d: %q", len(got), most, got)
		}
		if again := Shorten(got, most); again != got {
			t.Fatalf("shortened again it is %q", again)
		}
		lines := rapid.SliceOf(rapid.Just(s)).Draw(t, "lines")
		short := ShortenLines(lines)
		if n := len(strings.Join(short, "\n")); n > LimitLines.Most {
			t.Fatalf("the lines have %d bytes", n)
		}
		if again := ShortenLines(short); !reflect.DeepEqual(again, short) {
			t.Fatalf("shortened again the lines are %q", again)
		}
	})
}
