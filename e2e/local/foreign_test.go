package local

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// TestForeignClient submits jobs as CloudEvents in both modes with another NATS client, and follows
// the replies.
func TestForeignClient(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.services(1)
	c.agent("node-a", 2)
	ask := func(t *testing.T, mode, spec string) (kind, job, data string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "node", "submit.mjs", c.url, mode, spec)
		cmd.Dir = "testdata/foreign"
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("node submit.mjs: %v; its packages are installed by: make setup NEEDS=node\n%s", err, &stderr)
		}
		var a struct {
			Kind, Job string
			Data      json.RawMessage
		}
		if err := json.Unmarshal(out, &a); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return a.Kind, a.Job, string(a.Data)
	}
	for _, mode := range []string{"binary", "structured"} {
		t.Run(mode, func(t *testing.T) {
			kind, job, data := ask(t, mode, `{"name":"foreign","command":["true"],"workers":{"min":1,"max":2}}`)
			if kind != "dev.regroup.job.submitted.v1" || !strings.HasPrefix(job, "foreign-") {
				t.Fatalf("%s for %s: %s", kind, job, data)
			}
			v := c.until(ident.JobID(job), patience, "it ends", func(v events.JobView) bool { return v.State.Terminal() })
			if v.State != events.JobStateSucceeded {
				t.Errorf("state %s: %s", v.State, v.Reason)
			}
			kind, _, data = ask(t, mode, `{"name":"Foreign Job","workers":{"min":3,"mx":2},"image":"x"}`)
			if kind != "dev.regroup.job.rejected.v1" {
				t.Fatalf("a wrong spec was not rejected: %s %s", kind, data)
			}
			for _, field := range []string{"name", "command", "workers.mx", "image"} {
				if !strings.Contains(data, `"`+field+`"`) {
					t.Errorf("the rejection does not name %s: %s", field, data)
				}
			}
		})
	}
}

// TestMalformedEvents checks that malformed events are refused with a reason, recorded, and neither
// crash a service nor are redelivered.
func TestMalformedEvents(t *testing.T) {
	c := newCluster(t)
	c.services(1)
	for name, m := range map[string]broker.Message{
		"garbage":       {Subject: "regroup.cmd.job.submit", Data: []byte("\x00\xff not json")},
		"unknown type":  {Subject: "regroup.cmd.job.submit", Data: []byte(`{"specversion":"1.0","id":"x1","source":"/t","type":"dev.regroup.job.frobnicate.v1","data":{}}`)},
		"no id":         {Subject: "regroup.cmd.job.submit", Data: []byte(`{"specversion":"1.0","source":"/t","type":"dev.regroup.job.submit.v1","data":{}}`)},
		"a fact":        {Subject: "regroup.cmd.job.submit", Data: []byte(`{"specversion":"1.0","id":"x2","source":"/t","type":"dev.regroup.job.failed.v1","data":{"job":"a-1"}}`)},
		"unknown verb":  {Subject: "regroup.cmd.job.explode", Data: []byte(`{}`)},
		"too large":     {Subject: "regroup.cmd.job.submit", Data: []byte(`{"specversion":"1.0","id":"x3","source":"/t","type":"dev.regroup.job.submit.v1","data":{"spec":{"name":"` + strings.Repeat("a", 70<<10) + `"}}}`)},
		"unknown scale": {Subject: "regroup.cmd.job.scale", Data: []byte(`{"specversion":"1.0","id":"x4","source":"/t","type":"dev.regroup.job.scale.v1","data":{"job":"nobody-1","workers":{"min":1,"max":2}}}`)},
	} {
		if _, err := c.ports.Log.Publish(t.Context(), m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	job := c.submit("--name", "after", "--", "true") // the registry still works, after all of them
	c.agent("node-a", 1)
	c.ends(job, patience)
	eventually(t, patience, func() (bool, string) {
		n := 0
		for _, e := range rejected(t, c) {
			if len(e.Errors) == 0 {
				t.Errorf("rejected without a reason: %+v", e)
			}
			n++
		}
		return n == 7, "want 7 rejections, got " + string(rune('0'+n))
	})
	// Nothing is redelivered: the queue of commands is empty.
	eventually(t, patience, func() (bool, string) { // a refused command is settled after its refusal is published
		m, err := c.ports.Log.Last(t.Context(), events.StreamCommands, events.AllCommands)
		return errcode.Of(err) == errcode.NotFound, fmt.Sprintf("a command is still queued: %s %s, %v", m.Subject, m.Data, err)
	})
}
