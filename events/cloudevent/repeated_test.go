package cloudevent

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// TestKeysGivenTwiceAreRefused in commands, wherever they are: of two values this decoder takes the
// last, and a reader of the log may take the first.
func TestKeysGivenTwiceAreRefused(t *testing.T) {
	const head = `{"specversion":"1.0","id":"1","source":"/client/ada","type":"dev.regroup.job.stop.v1",`
	for text, path := range map[string]string{
		head + `"data":{"job":"demo-1"}}`:                                       "",
		head + `"data":{"job":"demo-1","job":"demo-2"}}`:                        "data.job",
		head + `"data":{"job":"demo-1"},"data":{"job":"demo-2"}}`:               "data",
		head + `"source":"/client/eve","data":{"job":"demo-1"}}`:                "source",
		head + `"type":"dev.regroup.job.remove.v1","data":{"job":"demo-1"}}`:    "type",
		head + `"data":{"job":"demo-1","extra":{"a":1,"a":2}}}`:                 "data.extra.a",
		head + `"subject":"jobs/x","subject":"jobs/y","data":{"job":"demo-1"}}`: "subject",
		head + `"data":{"job":"demo-1","reason":"a","now":false,"now":true}}`:   "data.now",
	} {
		_, err := Decode(nil, []byte(text))
		switch {
		case path == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case path != "" && (errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), path+": is given twice")):
			t.Errorf("%s: %v, want a refusal of %s", text, err, path)
		}
	}
	binary := map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/client/ada"}, "ce-type": {"dev.regroup.job.stop.v1"}}
	if _, err := Decode(binary, []byte(`{"job":"demo-1","job":"demo-2"}`)); err == nil || !strings.Contains(err.Error(), "data.job: is given twice") {
		t.Errorf("in binary mode: %v", err)
	}
}

// TestNoCommandIsOfTheCluster: services and agents send none.
func TestNoCommandIsOfTheCluster(t *testing.T) {
	for source, refused := range map[string]bool{
		"/client/ada": false, "/regroupie": false, events.ServiceSource(events.ServiceRegistry): true, events.AgentSource("node-a", "A1"): true, "/regroup/anything": true,
	} {
		m, err := Encode(events.Event{ID: "1", Source: source, Time: time.Now(), Body: events.JobStop{Job: "demo-1"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = DecodeStored(broker.Stored{Subject: m.Subject, Header: m.Header, Data: m.Data})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "source") {
			t.Errorf("%s: %v", source, err)
		}
	}
}
