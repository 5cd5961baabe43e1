package local

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// silent is an address that accepts connections and never replies, like a broker that hangs.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestTimeoutBoundsConnecting checks every command that connects to a server, both if the port is
// closed and if the server does not reply.
func TestTimeoutBoundsConnecting(t *testing.T) {
	for name, address := range map[string]string{"nobody listens": freeAddress(t), "nobody answers": silent(t)} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{
				{"ls"},
				{"status", "x"},
				{"logs", "x", "-f"},
				{"events", "--all", "-f"},
				{"trace", "x"},
				{"timeline", "x"},
				{"explain", "x"},
				{"wait", "x"},
				{"rm", "x"},
				{"scale", "x", "2"},
				{"stop", "x"},
				{"close", "x"},
				{"node", "ls"},
				{"node", "drain", "x"},
				{"node", "quarantine", "x"},
				{"submit", "--", "true"},
				{"run", "--", "true"},
				{"init"},
				{"agent"},
				{"serve", "registry"},
			} {
				t.Run(strings.Join(args, " "), func(t *testing.T) {
					t.Parallel()
					began := time.Now()
					_, errs, code := runLocal(t, t.TempDir(), patience, append(args[:1:1], append([]string{"--server", "nats://" + address, "--timeout", "1s"}, args[1:]...)...)...)
					if took := time.Since(began); code != 5 || took > atOnce {
						t.Errorf("exits %d after %s, want 5 after about a second:\n%s", code, took, errs)
					}
					if !strings.Contains(errs, address) || !strings.Contains(errs, "--timeout") {
						t.Errorf("it names no address or no remedy:\n%s", errs)
					}
				})
			}
		})
	}
}

// TestWhatWasReportedAsFailedIsNotCarriedOut starts a registry after a command has failed without
// one.
func TestWhatWasReportedAsFailedIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var out, errs string
	var code int
	for limit := time.Second; limit < time.Minute && !strings.Contains(errs, "not carried out"); limit *= 2 { // a busy machine may not have published it before
		out, errs, code = c.cli("submit", "--name", "late", "--timeout", limit.String(), "--", "true")
	}
	if code != 5 || !strings.Contains(errs, "not carried out") {
		t.Fatalf("submit exits %d without a registry, want 5:\n%s%s", code, out, errs)
	}
	c.start("registry", "serve", "registry", "--server", c.url)
	eventually(t, patience, func() (bool, string) {
		out, _, _ := c.cli("events", "--all")
		return strings.Contains(out, "job.rejected") && strings.Contains(out, "expired"), "no refusal is on record:\n" + out
	})
	if out, _, _ := c.cli("ls"); strings.Contains(out, "late") {
		t.Errorf("it was carried out all the same:\n%s", out)
	}
	if out, errs, code := c.cli("submit", "--name", "prompt", "--", "true"); code != 0 {
		t.Errorf("the next submit exits %d: %s%s", code, out, errs)
	}
}

// TestCommandsWaitForALeader stops two of three brokers, so that there is no leader; they come back
// while commands wait.
func TestCommandsWaitForALeader(t *testing.T) {
	t.Parallel()
	c := empty(t)
	c.startBrokers()
	if _, errs, code := c.cli("submit", "--timeout", "20s", "--", "true"); code != 3 || !strings.Contains(errs, "regroup init") {
		t.Errorf("without a topology submit exits %d, want 3 and a remedy:\n%s", code, errs)
	}
	if _, errs, code := c.cli("init", "--replicas", "3"); code != 0 {
		t.Fatalf("init exits %d: %s", code, errs)
	}
	c.services(1)
	c.agent("node-a", 1)
	c.ports = connect(t, c.url)
	succeeds := func(id ident.JobID) {
		c.until(id, patience, "it has succeeded", func(v events.JobView) bool { return v.State == events.JobStateSucceeded })
	}
	succeeds(c.submit("--", "true")) // all brokers have caught up

	c.kill("nats-1")
	c.kill("nats-2")
	_, errs, code := c.cli("submit", "--timeout", "10s", "--", "true")
	if code != 5 || !strings.Contains(errs, "leader") {
		t.Errorf("without a leader submit exits %d, want 5 and what it waited for:\n%s", code, errs)
	}
	for _, args := range [][]string{{"submit", "--timeout", "90s", "--name", "patient", "--", "true"}, {"ls", "--timeout", "90s"}} {
		s := begin(t, c.dir, append(args[:1:1], append([]string{"--server", c.url}, args[1:]...)...)...)
		s.prints("waiting up to 1m30s")
		defer func() {
			if code := s.ends(90 * time.Second); code != 0 {
				t.Errorf("%v exits %d once there is a leader", args, code)
			}
			if args[0] == "submit" {
				out := strings.Fields(s.printed())
				succeeds(ident.JobID(out[len(out)-1]))
			}
		}()
	}
	c.restart("nats-1")
	c.restart("nats-2")
}
