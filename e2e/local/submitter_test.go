package local

import (
	"context"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/jetstream"
)

// TestSubmitters: a submitter has its own jobs, which run as its user, whatever it publishes.
func TestSubmitters(t *testing.T) {
	t.Parallel()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	c := guarded(t)
	c.services(1)
	c.agent("node-a", 4)
	for _, args := range [][]string{{"ada"}, {"eve", "--user", me.Uid}} {
		if _, errs, code := c.cli(append([]string{"auth", "issue", "submitter"}, args...)...); code != 0 {
			t.Fatalf("auth issue %v exits %d: %s", args, code, errs)
		}
	}
	if _, errs, code := c.cli("auth", "issue", "client", "bob", "--user", "bob"); code != 2 || !strings.Contains(errs, "jobs of a client run as each of them says") {
		t.Errorf("a client with a user: exit %d: %s", code, errs)
	}
	as := func(name string, args ...string) (string, string, int) {
		return c.cli(append([]string{args[0], "--creds", filepath.Join(c.dir, "auth", "users", name+".creds"), "--tlsca", filepath.Join(c.dir, "auth", "tls", "ca.pem")}, args[1:]...)...)
	}
	job := func(name string, args ...string) events.JobView {
		t.Helper()
		out, errs, code := as(name, append([]string{"submit", "--workers", "1:2"}, args...)...)
		if code != 0 {
			t.Fatalf("a job of %s: exit %d: %s", name, code, errs)
		}
		return c.until(ident.JobID(strings.TrimSpace(out)), patience, "it steps", steps)
	}
	of := map[string]events.JobView{"ada": job("ada", counter(100000)...), "eve": job("eve", counter(100000)...)}
	if v := of["ada"]; v.By != "/submitter/ada" || v.Spec.Processes.User != "" {
		t.Errorf("ada's job is of %s, and runs as %q", v.By, v.Spec.Processes.User)
	}
	if v := of["eve"]; v.By != "/submitter/eve/as/"+me.Uid || v.Spec.Processes.User != me.Uid {
		t.Errorf("eve's job is of %s, and runs as %q", v.By, v.Spec.Processes.User)
	}
	other := map[string]string{"ada": "eve", "eve": "ada"}
	for name, v := range of {
		for _, args := range [][]string{{"scale", string(v.Job), "1"}, {"stop", string(v.Job)}} {
			if _, errs, code := as(other[name], args...); code == 0 || !strings.Contains(errs, "a submitter may change its own jobs only") {
				t.Errorf("%s of the job of %s by %s: exit %d: %s", args[0], name, other[name], code, errs)
			}
			if _, errs, code := as("viewer", args...); code == 0 || !strings.Contains(errs, "may not publish") {
				t.Errorf("%s of the job of %s by a viewer: exit %d: %s", args[0], name, code, errs)
			}
		}
		if _, errs, code := as(name, "scale", string(v.Job), "1"); code != 0 {
			t.Errorf("scale by %s: exit %d: %s", name, code, errs)
		}
	}
	for _, args := range [][]string{{"ls"}, {"status"}, {"events", string(of["ada"].Job)}, {"explain", string(of["eve"].Job)}, {"node", "ls"}} {
		if _, errs, code := as("eve", args...); code != 0 || strings.Contains(errs, "permission") {
			t.Errorf("%v exits %d: %s", args, code, errs)
		}
	}
	file := filepath.Join(c.dir, "job.yaml")
	if err := os.WriteFile(file, []byte("name: other\ncommand: [\"true\"]\nworkers: {min: 1, max: 1}\nprocesses: {user: daemon}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := as("eve", "submit", "-f", file); code != 2 || !strings.Contains(errs, "processes.user") || !strings.Contains(errs, "jobs of eve run as "+me.Uid) {
		t.Errorf("a job of eve as daemon: exit %d: %s", code, errs)
	}
	c.forges(of["eve"].Job)
	// Without a name it is the only one of its own.
	if _, errs, code := as("ada", "stop"); code != 0 || !strings.Contains(errs, string(of["ada"].Job)) {
		t.Errorf("stop by ada: exit %d: %s", code, errs)
	}
	if _, errs, code := as("eve", "stop", string(of["eve"].Job)); code != 0 {
		t.Errorf("stop by eve: exit %d: %s", code, errs)
	}
	for _, v := range of {
		c.until(v.Job, patience, "it has stopped", func(now events.JobView) bool { return now.State == events.JobStateStopped })
	}
	for name, v := range of {
		if _, errs, code := as(name, "rm", "--ended"); code != 0 || !strings.Contains(errs, string(v.Job)+" is removed") || !strings.Contains(errs, "1 job removed") {
			t.Errorf("rm by %s: exit %d: %s", name, code, errs)
		}
	}
	if out, errs, code := c.cli("auth", "ls"); code != 0 || !strings.Contains(out, "anybody") {
		t.Errorf("auth ls exits %d: %s%s", code, out, errs)
	}
}

// forges publishes as ada what the broker lets nobody else, or the registry does not take there.
func (c *cluster) forges(victim ident.JobID) {
	t := c.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := jetstream.Connect(ctx, jetstream.ConnectOptions{
		URL: c.url, Name: "ada", Credentials: filepath.Join(c.dir, "auth", "users", "ada.creds"), RootCA: filepath.Join(c.dir, "auth", "tls", "ca.pem"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stop, forged := events.JobStop{Job: victim}, spec.Job{Name: "forged", Command: []string{"true"}, Workers: spec.Workers{Min: 1, Max: 1}}
	for what, x := range map[string]struct {
		source, subject string
		body            events.Body
		stored          bool
	}{
		"as a client":              {"/client/ada", "regroup.cmd.job.stop", stop, false},
		"as eve":                   {"/submitter/eve", "regroup.cmd.job.stop.by.eve", stop, false},
		"with another user":        {"/submitter/ada/as/root", "regroup.cmd.job.submit.by.ada.as.root", events.JobSubmit{Spec: forged}, false},
		"as a client, as ada":      {"/client/ada", "regroup.cmd.job.stop.by.ada", stop, true},
		"another command":          {"/submitter/ada", "regroup.cmd.job.stop.by.ada", events.NodeDrain{Node: "node-a"}, true},
		"with a user in its name":  {"/submitter/ada/as/root", "regroup.cmd.job.submit.by.ada", events.JobSubmit{Spec: forged}, true},
		"of an unknown job's name": {"/submitter/ada", "regroup.cmd.job.stop.by.ada", events.JobStop{Job: "forged-1"}, true},
	} {
		id := "forged-" + strings.ReplaceAll(what, " ", "-")
		m, err := cloudevent.Encode(events.Event{ID: id, Source: x.source, Time: time.Now(), Body: x.body})
		if err != nil {
			t.Fatal(err)
		}
		m.Subject = x.subject
		_, err = conn.Ports().Log.Publish(ctx, m)
		if x.stored != (err == nil) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err != nil {
			if !strings.Contains(strings.ToLower(err.Error()), "may not publish") {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		refused := c.refusal(ctx, id)
		if want := map[bool]string{true: "there is no job", false: "belongs on"}[strings.Contains(what, "unknown")]; !strings.Contains(refused, want) {
			t.Errorf("%s: %q, want %q", what, refused, want)
		}
	}
	if v := c.job(victim); v.State != events.JobStateRunning {
		t.Errorf("%s is %s", victim, v.State)
	}
}

// refusal waits for the fact that refuses a command, and returns its reasons.
func (c *cluster) refusal(ctx context.Context, command string) (reasons string) {
	c.t.Helper()
	err := c.ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Start: broker.FromFirst, Subjects: []string{events.FactSubject(events.JobRejected{}.Type(), "*")}}, func(s broker.Stored) error {
		e, err := cloudevent.DecodeStored(s)
		if r, ok := e.Body.(events.JobRejected); err == nil && ok && r.Command == command {
			for _, f := range r.Errors {
				reasons += f.String() + "; "
			}
			return context.Canceled
		}
		return nil
	}, nil)
	if reasons == "" {
		c.t.Errorf("%s was not refused: %v", command, err)
	}
	return reasons
}
