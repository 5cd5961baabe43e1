package cloudevent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// TestExpiry: the time after which a command must not be carried out is encoded in both modes, and
// a command that is published again after it is another message to the broker.
func TestExpiry(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 32, 0, 5e6, time.UTC)
	e := events.Event{ID: "1", Source: "/client/zoe", Body: events.JobStop{Job: "cifar-1a2b"}, Expires: at.In(time.FixedZone("far", 3600))}
	binary, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if got := binary.Header["ce-expirytime"]; len(got) != 1 || got[0] != "2026-11-21T10:32:00.005Z" {
		t.Errorf("ce-expirytime is %q", got)
	}
	structured, err := EncodeStructured(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []broker.Message{binary, structured} {
		got, err := Decode(m.Header, m.Data)
		if err != nil || !got.Expires.Equal(at) {
			t.Errorf("read %s, %v", got.Expires, err)
		}
	}
	e.Expires = at.Add(time.Second)
	later, err := Encode(e)
	if err != nil || later.ID == binary.ID {
		t.Errorf("given again it has the same id %q, %v", later.ID, err)
	}
	binary.Header["ce-expirytime"] = []string{"soon"}
	if _, err := Decode(binary.Header, binary.Data); !errors.Is(err, errcode.ErrInvalid) || !strings.Contains(err.Error(), "expirytime") {
		t.Errorf("a malformed time is %v, want Invalid", err)
	}
	fact := map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/x"}, "ce-type": {"dev.regroup.job.finishing.v1"}, "ce-subject": {"a"}, "ce-expirytime": {"soon"},
	}
	if e, err := Decode(fact, []byte(`{}`)); err != nil || !e.Expires.IsZero() {
		t.Errorf("a fact has the expiry %s, %v; want none", e.Expires, err)
	}
}
