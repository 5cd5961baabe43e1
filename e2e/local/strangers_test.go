package local

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	processes "github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// family returns the processes of the cluster and their descendants.
func (c *cluster) family() map[int]string {
	parents := map[int]int{}
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	own := map[int]string{}
	for _, name := range c.procs.Names() {
		pid := c.procs.PID(name)
		own[pid] = name
	}
	family := map[int]string{}
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if name, ok := own[p]; ok {
				if family[pid] = name; p != pid {
					family[pid] = "a worker of " + name
				}
				break
			}
		}
	}
	return family
}

// listeners returns the TCP ports at which the processes of the cluster listen, and whose each is.
func (c *cluster) listeners() map[string]string {
	sockets := map[string]string{} // address by inode
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			const listens = "0A"
			if len(f) < 10 || f[3] != listens {
				continue
			}
			port, err := strconv.ParseUint(f[1][strings.LastIndexByte(f[1], ':')+1:], 16, 16)
			if err != nil {
				c.t.Fatal(err)
			}
			sockets["socket:["+f[9]+"]"] = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
		}
	}
	of := map[string]string{}
	for pid, name := range c.family() {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is right
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && sockets[to] != "" {
				of[sockets[to]] = name
			}
		}
	}
	return of
}

// footprint is what a process holds.
type footprint struct {
	resident float64 // MiB
	files    int     // descriptors
}

func (c *cluster) footprints() map[int]footprint {
	all := map[int]footprint{}
	for pid := range c.family() {
		used, err := processes.Used(pid)
		files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			continue // it has ended
		}
		f := footprint{resident: used.Now, files: len(files)}
		all[pid] = f
	}
	return all
}

// attack is what a stranger sends; the result is the answer.
type attack func(c net.Conn) []byte

// listened reads what comes until nothing does for a while.
func listened(c net.Conn) []byte {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	b, _ := io.ReadAll(io.LimitReader(c, 1<<20)) // what came before the error
	return b
}

// attacks are tried at each port.
var attacks = map[string]attack{
	"garbage": func(c net.Conn) []byte {
		b := make([]byte, 64<<10)
		_, _ = rand.Read(b)
		_, _ = c.Write(b) // it may be refused in the middle
		return listened(c)
	},
	"a request of HTTP": func(c net.Conn) []byte {
		_, _ = io.WriteString(c, "GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
		return listened(c)
	},
	"silence": listened,
	"its own words": func(c net.Conn) []byte {
		printed := listened(c)
		_, _ = c.Write(append(printed, printed...))
		return append(printed, listened(c)...)
	},
	"a byte at a time": func(c net.Conn) []byte {
		for range 20 {
			if _, err := c.Write([]byte{'P'}); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond) // that is the attack
		}
		return listened(c)
	},
	"more than memory should hold": func(c net.Conn) []byte {
		_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
		b := bytes.Repeat([]byte{0xff}, 1<<20)
		for range 256 {
			if _, err := c.Write(b); err != nil {
				break
			}
		}
		return listened(c)
	},
}

// TestStrangersAtEveryPort of every process: they learn nothing of a job, cost little, leave
// nothing behind, and the jobs do not notice. The ports are those that the kernel lists.
func TestStrangersAtEveryPort(t *testing.T) {
	t.Parallel()
	c := identities(t)
	listen, routes := []string{strings.TrimPrefix(c.url, "nats://"), freeAddress(t)}, []string{freeAddress(t), freeAddress(t)}
	for i := range listen {
		name := fmt.Sprintf("broker-%d", i)
		c.start(name, "serve", "nats", "--name", name, "--listen", listen[i], "--cluster", "c", "--cluster-listen", routes[i], "--routes", strings.Join(routes, ","),
			"--state-dir", filepath.Join(c.dir, name))
	}
	c.watches()
	if _, errs, code := c.cli("init", "--replicas", "1", "--creds", filepath.Join(c.dir, "auth", "users", "operator.creds"), "--tlsca", filepath.Join(c.dir, "auth", "tls", "ca.pem")); code != 0 {
		t.Fatalf("init exits %d: %s", code, errs)
	}
	c.services(1)
	c.start("gateway", "serve", "gateway", "--listen", "127.0.0.1:0", "--server", c.url, "--state-dir", filepath.Join(c.dir, "gateway"))
	c.agent("node-a", 4)
	job := c.submit(append([]string{"--name", "private", "--workers", "2"}, counter(1_000_000)...)...)
	other := c.submit("--name", "private-too", "--workers", "2", "--", "sleep", "600") // its agent serves a TCPStore
	c.until(job, patience, "it steps", steps)
	c.until(other, patience, "it runs", func(v events.JobView) bool { return v.Generation == 1 && v.State == events.JobStateRunning })
	ports := c.listeners()
	for _, who := range []string{"broker-0", "gateway", "node-a", "a worker of node-a"} {
		if n := countOf(ports, who); n == 0 || who == "broker-0" && n != 2 {
			t.Errorf("%s listens at %d ports: %v", who, n, ports)
		}
	}
	before := c.footprints()
	var wait sync.WaitGroup
	for address, who := range ports {
		for name, attack := range attacks {
			for range 8 {
				wait.Go(func() {
					conn, err := net.DialTimeout("tcp", address, time.Minute)
					if err != nil {
						t.Errorf("%s of %s: %v", address, who, err)
						return
					}
					defer conn.Close()
					if printed := attack(conn); bytes.Contains(printed, []byte("private")) {
						t.Errorf("%s tells a stranger with %s: %q", who, name, printed)
					}
				})
			}
		}
	}
	wait.Wait()
	const grows = 96 // MiB; each port got 8 times 256
	for pid, f := range c.footprints() {
		if b, ok := before[pid]; ok && f.resident > b.resident+grows {
			t.Errorf("%s grew from %.0f to %.0f MiB", c.family()[pid], b.resident, f.resident)
		}
	}
	eventually(t, patience, func() (bool, string) {
		for pid, f := range c.footprints() {
			if b, ok := before[pid]; ok && f.files > b.files+8 {
				return false, fmt.Sprintf("%s holds %d descriptors, %d before", c.family()[pid], f.files, b.files)
			}
		}
		return true, ""
	})
	at := c.job(job).Step
	v := c.until(job, patience, "it steps on", func(v events.JobView) bool { return v.Step > at })
	beside := c.until(other, patience, "it is on record", func(events.JobView) bool { return true })
	if v.Generation != 1 || len(v.Incidents) > 1 || beside.Generation != 1 {
		t.Errorf("a job has noticed: generation %s and %s, %+v", v.Generation, beside.Generation, v.Incidents)
	}
	for _, id := range []ident.JobID{job, other} {
		if _, errs, code := c.cli("stop", "--now", string(id)); code != 0 {
			t.Errorf("stop exits %d: %s", code, errs)
		}
	}
}

func countOf(ports map[string]string, who string) int {
	n := 0
	for _, name := range ports {
		if name == who {
			n++
		}
	}
	return n
}
