package cloudevent

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestOverALimit: an excess is refused with the limit's name.
func TestOverALimit(t *testing.T) {
	long := strings.Repeat("x", limits.Word.Max+1)
	deep := strings.Repeat("[", limits.Depth.Max+1) + strings.Repeat("]", limits.Depth.Max+1)
	epochs := strings.Repeat(`{"epoch":1,"count":1,"sum":"1"},`, limits.Epochs.Max) + `{"epoch":2,"count":1,"sum":"1"}`
	names := map[string]float64{}
	for i := range limits.Names.Max + 1 {
		names[fmt.Sprint("loss-", i)] = 1
	}
	metrics, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	ranges := `"node-a/0-4095"` + strings.Repeat(`,"node-a/0-4095"`, 40_000)
	members := "{}" + strings.Repeat(",{}", limits.Workers.Max)
	for name, c := range map[string]struct {
		limit limits.Limit
		err   error
	}{
		"slots of a hello":     {limits.Slots, decodeErr[events.NodeHello](`{"node":"a","slots":2000000000}`)},
		"slots of a heartbeat": {limits.Slots, decodeErr[events.Heartbeat](`{"node":"a","slots":5000}`)},
		"a slot of a place":    {limits.Slots, decodeErr[events.WorkerExited](`{"place":{"node":"a","slot":100000}}`)},
		"a range of slots":     {limits.Slots, decodeErr[events.PlacementSet](`{"places":["a/0-65535"]}`)},
		"40000 ranges":         {limits.Workers, decodeErr[events.PlacementSet](`{"places":[` + ranges + `]}`)},
		"places of members":    {limits.Workers, decodeErr[events.RoundSealed](`{"members":{"places":[` + ranges + `]}}`)},
		"a list of members":    {limits.Workers, decodeErr[events.RoundSealed](`{"members":[` + members + `]}`)},
		"an incarnation":       {limits.Word, decodeErr[events.WorkerExited](`{"incarnation":"` + long + `"}`)},
		"a hash":               {limits.Word, decodeErr[events.WorkerExited](`{"commit":{"hash":"` + long + `"}}`)},
		"an address":           {limits.Word, decodeErr[events.MemberJoin](`{"address":"` + long + `"}`)},
		"accused":              {limits.Entries, decodeErr[events.MemberJoin](`{"accused":[1` + strings.Repeat(",1", limits.Entries.Max) + `]}`)},
		"metrics":              {limits.Names, decodeErr[events.Progress](`{"metrics":` + string(metrics) + `}`)},
		"the name of a metric": {limits.Word, decodeErr[events.Progress](`{"metrics":{"` + long + `":1}}`)},
		"epochs":               {limits.Epochs, decodeErr[events.WorkerDone](`{"ledger":{"epochs":[` + epochs + `]}}`)},
		"depth":                {limits.Depth, decodeErr[events.JobStop](`{"reason":` + deep + `}`)},
		"depth of an envelope": {limits.Depth, eventErr(nil, `{"data":`+deep+`}`)},
		"an envelope":          {limits.Envelope, eventErr(withHeader("ce-id", strings.Repeat("x", limits.Envelope.Max+1)), stopData)},
		"an extension":         {limits.Envelope, eventErr(withHeader("ce-extra", strings.Repeat("x", limits.Envelope.Max+1)), stopData)},
		"a message":            {limits.Message, eventErr(stopHeaders(), strings.Repeat("x", limits.Message.Max+1))},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), "limit "+c.limit.Name) {
			t.Errorf("%s: %.200v, want limit %s", name, c.err, c.limit.Name)
		}
		if code := errcode.Of(c.err); code != errcode.Invalid && code != errcode.TooLarge {
			t.Errorf("%s: code %s", name, code)
		}
	}
}

func decodeErr[B events.Body](data string) error {
	_, err := bodies.Decode[B]([]byte(data))
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

// TestDecompressionBombIsRefused: 64 KiB that decompress to 64 MiB cost about their size.
func TestDecompressionBombIsRefused(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(bytes.Repeat([]byte(" "), 60<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Len() > limits.Command.Max {
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
		if errcode.Of(err) != errcode.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		if name != "structured" && e.ID != "42" {
			t.Errorf("%s: no client can be notified: %+v", name, e)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 2<<20 {
			t.Errorf("%s: refusing it costs %d bytes", name, cost)
		}
	}
}

// TestEveryTextIsShortened puts an excessive text into every field of every body, so that no new
// field is missed.
func TestEveryTextIsShortened(t *testing.T) {
	inputs := []events.Body{
		events.NodeHello{},
		events.NodeLeave{},
		events.NodeWelcome{},
		events.MemberJoin{},
		events.MemberWaiting{},
		events.MemberJoins{},
		events.MemberAnswers{},
		events.PeersQuery{},
		events.NodeEnter{},
		events.NodeExit{},
		events.NodeMembership{},
		events.RendezvousClose{},
		events.Heartbeat{},
		events.NoticeEnvelope{},
		events.Progress{},
		events.Abandon{},
		events.RendezvousStatus{},
		events.Launch{},
		events.Pong{},
	}
	for _, row := range events.Catalog() {
		if _, own := row.New().(events.JobSubmit); !own { // its spec is refused as a whole
			inputs = append(inputs, row.New())
		}
	}
	for _, b := range inputs {
		v := reflect.New(reflect.TypeOf(b)).Elem()
		v.Set(reflect.ValueOf(filled(t, b)))
		flood(v)
		data, err := bodies.Encode(v.Interface().(events.Body))
		if err != nil {
			t.Fatal(err)
		}
		body, bad := bodies.DecodeAs(b, data, "")
		if len(bad) > 0 {
			t.Errorf("%s: %v", b.Type(), bad)
			continue
		}
		again, err := bodies.Encode(body)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > 24<<10 {
			t.Errorf("%s: %d bytes came in and %d are kept", b.Type(), len(data), len(again))
		}
		if len(data) > 50_000 && !bytes.Contains(again, []byte("left out]")) {
			t.Errorf("%s: there is no mark that something is left out", b.Type())
		}
	}
}

// flood fills every text with 100 KB.
func flood(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Type != reflect.TypeFor[spec.Job]() && (f.Tag.Get("bound") == "" || f.Tag.Get("bound") == "lines") {
				flood(v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			flood(v.Elem())
		}
	case reflect.Slice:
		switch v.Type() {
		case reflect.TypeFor[ident.Places](), reflect.TypeFor[tables.MemberTable]():
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

// TestSealOf40000IsAMessage: a server accepts messages of at most one mebibyte.
func TestSealOf40000IsAMessage(t *testing.T) {
	e := events.Event{ID: "rendezvous-great-0001-round-2", Source: "/regroup/rendezvous", Entity: "great-0001", Number: 2, Body: events.RoundSealed{
		Job: "great-0001", Generation: 1, Members: eventstest.SampleMembers(5000, 8), Cause: events.Cause{Kind: events.CauseStart, Rank: -1},
	}}
	m, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(m.Data))
	if len(m.Data) > 400<<10 || len(m.Header[headerEncoding]) != 1 {
		t.Errorf("%d bytes, headers %v", len(m.Data), m.Header)
	}
	got, err := Decode(m.Header, m.Data)
	if err != nil || !reflect.DeepEqual(got.Body, e.Body) {
		t.Errorf("it does not read back: %v", err)
	}
	for _, bad := range []string{"br", "gzip"} {
		m.Header[headerEncoding] = []string{bad}
		if _, err := Decode(m.Header, []byte("{}")); errcode.Of(err) != errcode.Invalid {
			t.Errorf("encoding %s of no such data: %v, want Invalid", bad, err)
		}
	}
}
