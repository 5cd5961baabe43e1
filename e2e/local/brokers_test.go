package local

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream"
)

// startBrokers starts three NATS servers that form a cluster, nats-0 to nats-2.
func (c *cluster) startBrokers() {
	var listen, routes, urls []string
	for range 3 {
		listen = append(listen, freeAddress(c.t))
		routes = append(routes, freeAddress(c.t))
		urls = append(urls, "nats://"+listen[len(listen)-1])
	}
	c.url = strings.Join(urls, ",")
	for i := range 3 {
		name := fmt.Sprintf("nats-%d", i)
		c.start(name, "serve", "nats", "--name", name, "--listen", listen[i], "--cluster", "e2e", "--cluster-listen", routes[i],
			"--routes", strings.Join(routes, ","), "--state-dir", filepath.Join(c.dir, name))
	}
}

// TestThreeBrokers runs three NATS servers as separate processes with three replicas of all
// streams. One is killed at the same time as a worker; the job regroups and succeeds.
func TestThreeBrokers(t *testing.T) {
	t.Parallel()
	c := empty(t)
	c.startBrokers()
	if _, errs, code := c.cli("init", "--replicas", "3"); code != 0 {
		t.Fatalf("init exits %d: %s", code, errs)
	}
	conn, err := jetstream.Connect(t.Context(), jetstream.ConnectOptions{URL: c.url, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	c.ports = conn.Ports()
	c.services(1)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	job := c.submit(append([]string{"--workers", "2:4"}, c.counts(600)...)...)
	v := c.until(job, patience, "its first generation steps", func(v events.JobView) bool { return len(v.Generations) > 0 && v.Generations[0].Ready })
	c.kill("nats-0")
	killPID(t, v.Generations[0].Members[1].PID)
	s := c.ends(job, patience)
	if len(s.Generations) < 2 {
		t.Error("the kill of a worker made no new generation")
	}
	survivorsKeepTheirProcess(t, s)
	publishedOnce(t, c, job)
}
