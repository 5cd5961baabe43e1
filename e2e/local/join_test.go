package local

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/jetstream"
)

// TestThreeMachinesJoin starts one `regroup up` with a job, and two more that join it; when all
// streams have three replicas the first is killed: the job continues without it and succeeds.
func TestThreeMachinesJoin(t *testing.T) {
	t.Parallel()
	c := empty(t)
	const secret = "of-this-test"
	c.env = []string{"REGROUP_SECRET=" + secret}
	names := []string{"node-a", "node-b", "node-c"}
	listen, routes := map[string]string{}, map[string]string{}
	up := func(name string, more ...string) {
		listen[name], routes[name] = freeAddress(t), freeAddress(t)
		c.start(name, append([]string{
			"up", "--node", name, "--slots", "2", "--advertise", "127.0.0.1", "--listen", listen[name], "--cluster-listen", routes[name],
			"--state-dir", filepath.Join(c.dir, name),
		}, more...)...)
	}
	connect := func(url string) *jetstream.Conn {
		c.url = url
		conn, err := jetstream.Connect(t.Context(), jetstream.ConnectOptions{URL: url, Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		c.ports = conn.Ports()
		return conn
	}
	up(names[0])
	conn := connect("nats://regroup:" + secret + "@" + listen[names[0]])
	eventually(t, patience, func() (bool, string) { return conn.Verify(t.Context()) == nil, "the first works alone" })
	job := c.submit(append([]string{"--workers", "2:6"}, c.counts(500)...)...)
	c.until(job, patience, "it steps on the first machine alone", steps)
	up(names[1], "--join", routes[names[0]])
	up(names[2], "--join", routes[names[0]]+","+routes[names[1]])
	v := c.until(job, patience, "it has grown to all machines", func(v events.JobView) bool {
		g := v.Generations[len(v.Generations)-1]
		return len(g.Members) == 6 && g.Ready
	})
	conn = connect("nats://regroup:" + secret + "@" + listen[names[1]] + ",nats://regroup:" + secret + "@" + listen[names[2]])
	eventually(t, patience, func() (bool, string) {
		n, err := conn.Copies(t.Context())
		return err == nil && n == 3, "everything is stored three times"
	})
	c.kill(names[0])
	c.until(job, patience, "it has regrouped without the first machine", func(now events.JobView) bool { return now.Generation > v.Generation })
	s := c.ends(job, 3*time.Minute)
	survivorsKeepTheirProcess(t, s)
	publishedOnce(t, c, job)
}
