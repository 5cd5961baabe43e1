package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/discovery/liveness"
	registry "github.com/regroup-io/regroup/services/registry/job"
	"github.com/regroup-io/regroup/services/rendezvous/round"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// oldBuilds are folders of what an old build has stored, named after its commit. Command upgrade
// writes them with -documents.
func oldBuilds(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/*")
	if err != nil || len(all) == 0 {
		t.Fatalf("no documents of old builds: %v", err)
	}
	return all
}

// files are those of a folder.
func files(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%s is empty: %v", folder, err)
	}
	found := map[string][]byte{}
	for _, file := range all {
		if found[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestOldDocumentsKeepTheirMeaning: what an old build has stored is decoded to states that, stored
// again, say all that the old documents said.
func TestOldDocumentsKeepTheirMeaning(t *testing.T) {
	for _, dir := range oldBuilds(t) {
		stored(t, filepath.Join(dir, events.BucketNodes), func(s liveness.State) error {
			if v := s.View; v.State != events.NodeStateReady || v.Incarnation == "" || v.Slots == 0 || v.Address == "" || !v.Link.Known() {
				return fmt.Errorf("the node is %+v", v)
			}
			return nil
		})
		stored(t, filepath.Join(dir, events.BucketPlacements), func(s plan.State) error {
			for id, row := range s.View.Jobs {
				if len(row.Places) == 0 || row.Workers.Max == 0 {
					return fmt.Errorf("job %s has %+v", id, row)
				}
			}
			if len(s.View.Jobs) == 0 || len(s.Nodes) == 0 {
				return fmt.Errorf("the pool has %d jobs on %d nodes", len(s.View.Jobs), len(s.Nodes))
			}
			return nil
		})
		stored(t, filepath.Join(dir, events.BucketRounds), func(s round.State) error {
			switch v := s.View; {
			case v.State != events.RoundStateSealed || v.Generation < 2 || len(v.Members) != s.Workers.Max:
				return fmt.Errorf("the round is %s, generation %s with %d members of %d", v.State, v.Generation, len(v.Members), s.Workers.Max)
			case len(s.Members) != len(v.Members) || len(s.Published) == 0 || s.Packed != "":
				return fmt.Errorf("%d members were packed, launches of %d nodes, %q is left", len(s.Members), len(s.Published), s.Packed)
			}
			return nil
		})
		stored(t, filepath.Join(dir, events.BucketJobs), func(s registry.State) error {
			switch v := s.View; {
			case v.State != events.JobStateRunning || len(v.Workers) != v.Spec.Workers.Max || len(v.Generations) < 2:
				return fmt.Errorf("the job is %s with %d workers in %d generations", v.State, len(v.Workers), len(v.Generations))
			case len(v.Incidents) == 0 || v.Incidents[0].Cause.Kind != events.CauseWorkerFailed || len(v.CountedFailures) != 1:
				return fmt.Errorf("the job has %d counted failures, want that of the worker that was killed; its incidents: %+v", len(v.CountedFailures), v.Incidents)
			}
			return nil
		})
	}
}

// stored decodes each document in a folder, has its state checked, and compares what it says with
// what is stored of the state now.
func stored[S any](t *testing.T, folder string, check func(S) error) {
	t.Helper()
	for file, b := range files(t, folder) {
		d, err := document.Decode(b)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var s S
		err = json.Unmarshal(d.State, &s)
		if p, ok := any(s).(controller.Packer[S]); ok && err == nil {
			s, err = p.Unpack()
		}
		if err == nil {
			err = check(s)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if p, ok := any(s).(controller.Packer[S]); ok {
			s = p.Pack()
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lost(t, d.State, again) {
			if !dropped.MatchString(filepath.Base(folder) + l) {
				t.Errorf("%s: %s", file, l)
			}
		}
	}
}

// dropped is what documents said twice: the scheduler kept a copy of the specification of each job,
// and reads that of the registry now.
var dropped = regexp.MustCompile(`^placements\.queue\[\d+\]\.spec\.`)

// TestOldEventsKeepTheirMeaning: events and launches that an old build has published say, decoded
// and encoded again, all that they said.
func TestOldEventsKeepTheirMeaning(t *testing.T) {
	for _, dir := range oldBuilds(t) {
		var kinds []string
		for file, b := range files(t, filepath.Join(dir, "events")) {
			kinds = append(kinds, strings.TrimSuffix(filepath.Base(file), ".json"))
			var m message
			if err := json.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			e, err := cloudevent.Decode(m.Header, m.Data)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			again, err := cloudevent.Encode(e)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if again.Subject != m.Subject {
				t.Errorf("%s: its subject was %s, now it is %s", file, m.Subject, again.Subject)
			}
			for name, values := range m.Header {
				if strings.HasPrefix(strings.ToLower(name), "ce-") && !slices.Equal(again.Header[name], values) {
					t.Errorf("%s: header %s was %q, now it is %q", file, name, values, again.Header[name])
				}
			}
			for _, l := range lost(t, m.Data, again.Data) {
				t.Errorf("%s: %s", file, l)
			}
		}
		for _, want := range []string{
			"job.submitted", "placement.set", "node.joined", "round.opened", "round.sealed", "worker.started", "worker.ready", "worker.exited",
			"job.charged", "job.respawned", "incident.opened", "incident.closed",
		} {
			if !slices.Contains(kinds, want+".v1") {
				t.Errorf("%s has no event %s", dir, want)
			}
		}
		for file, b := range files(t, filepath.Join(dir, "launches")) {
			var m message
			var l events.Launch
			if err := json.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(m.Data, &l); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if m.Subject != events.LaunchSubject(l.Node, l.Job) {
				t.Errorf("%s: its subject was %s, now it is %s", file, m.Subject, events.LaunchSubject(l.Node, l.Job))
			}
			again, err := events.EncodeBody(l)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range lost(t, m.Data, again) {
				t.Errorf("%s: %s", file, x)
			}
		}
	}
}

// lost lists what one JSON text says and another does not. What is empty may be left out.
func lost(t *testing.T, before, after []byte) []string {
	t.Helper()
	read := func(b []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	var found []string
	var compare func(path string, before, after any)
	compare = func(path string, before, after any) {
		switch x := before.(type) {
		case map[string]any:
			y, _ := after.(map[string]any)
			for name, value := range x {
				compare(path+"."+name, value, y[name])
			}
			return
		case []any:
			y, _ := after.([]any)
			if len(x) == len(y) {
				for i := range x {
					compare(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])
				}
				return
			}
			if len(x) > 0 || len(y) > 0 {
				found = append(found, fmt.Sprintf("%s had %d elements, now it has %d", path, len(x), len(y)))
			}
			return
		case string, bool, json.Number:
			if before == after || after == nil && (x == "" || x == false || x == json.Number("0")) {
				return
			}
		case nil:
			return
		}
		found = append(found, fmt.Sprintf("%s was %v, now it is %v", path, before, after))
	}
	compare("", read(before), read(after))
	slices.Sort(found)
	return found
}

func TestWhatIsLostIsNoticed(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`{"a":1,"b":{"c":"x"}}`, `{"a":1,"b":{"c":"x","new":2}}`, ""},
		{`{"a":1,"b":"","c":false,"d":0,"e":null,"f":[],"g":{}}`, `{"a":1}`, ""},
		{`{"a":1}`, `{"b":1}`, ".a was 1, now it is <nil>"},
		{`{"a":{"b":[{"c":18446744073709551615}]}}`, `{"a":{"b":[{"c":18446744073709551614}]}}`, ".a.b[0].c was 18446744073709551615, now it is 18446744073709551614"},
		{`{"a":[1,2]}`, `{"a":[1]}`, ".a had 2 elements, now it has 1"},
		{`{"a":[1]}`, `{}`, ".a had 1 elements, now it has 0"},
		{`{"a":"x"}`, `{"a":"y"}`, ".a was x, now it is y"},
	} {
		if got := strings.Join(lost(t, []byte(c.before), []byte(c.after)), "; "); got != c.want {
			t.Errorf("%s after %s: %q, want %q", c.after, c.before, got, c.want)
		}
	}
}
