// Package presence concludes from connections and answers whether brokers are there: which servers
// refuse connections, and which questions most of the brokers of a stream have answered.
package presence

import (
	"encoding/json"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

// kept is how many questions may be without an answer.
const kept = 64

// Dialer connects to servers, and records the result of the newest attempt at each address. A host
// that refuses a connection is there, and no server runs on it: unlike silence, that is proof. A
// firewall that answers for a host in this way (REJECT) cannot be told from that.
type Dialer struct {
	Timeout time.Duration // of one attempt

	mu       sync.Mutex
	attempts map[string]dialAttempt // since the last connection
	failed   error                  // of the last attempt
}

type dialAttempt struct {
	began   time.Time
	refused bool
}

// Dial implements nats.CustomDialer.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	began := time.Now()
	c, err := (&net.Dialer{Timeout: d.Timeout}).Dial(network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attempts == nil {
		d.attempts = map[string]dialAttempt{}
	}
	d.attempts[address], d.failed = dialAttempt{began: began, refused: errors.Is(err, syscall.ECONNREFUSED)}, err
	return c, err
}

// Failed returns why the last attempt has failed; nil = it has not.
func (d *Dialer) Failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Reset forgets all attempts: there is a connection.
func (d *Dialer) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempts = nil
}

// Stopped returns since when all of at least so many servers have refused a connection; zero = they
// have not.
func (d *Dialer) Stopped(servers int) (since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.attempts) < servers {
		return time.Time{}
	}
	for _, a := range d.attempts {
		if !a.refused {
			return time.Time{}
		}
		since = events.Earliest(since, a.began)
	}
	return since
}

// Questions are those that a process has asked the brokers.
type Questions struct {
	Inbox string // prefix of the subjects of their answers

	mu      sync.Mutex
	number  uint64
	asked   map[string]*question // by the subject of the answers
	brokers []string             // those that store the stream, as far as their names are known
	needed  int                  // answers that are most of them; 0 = it is not known
}

type question struct {
	number  uint64
	at      time.Time
	answers map[string]bool // by the name of the broker
}

// Ask adds a question and returns where it is answered.
func (q *Questions) Ask(now time.Time) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asked == nil {
		q.asked = map[string]*question{}
	}
	q.number++
	maps.DeleteFunc(q.asked, func(_ string, o *question) bool { return o.number+kept <= q.number })
	reply := q.Inbox + "." + strconv.FormatUint(q.number, 10)
	q.asked[reply] = &question{number: q.number, at: now, answers: map[string]bool{}}
	return reply
}

// Copies sets which brokers store the stream.
func (q *Questions) Copies(c *js.ClusterInfo) {
	if c == nil || c.Leader == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.brokers = []string{c.Leader}
	for _, r := range c.Replicas {
		q.brokers = append(q.brokers, r.Name)
	}
	q.needed = len(q.brokers)/2 + 1
}

// Answer counts the answer of one broker. The last one that is needed returns when it was asked.
func (q *Questions) Answer(m *nats.Msg) (asked time.Time, most bool) {
	var from struct {
		Server struct {
			Name string `json:"name"`
		} `json:"server"`
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.asked[m.Subject]
	if o == nil || json.Unmarshal(m.Data, &from) != nil || !slices.Contains(q.brokers, from.Server.Name) {
		return time.Time{}, false
	}
	o.answers[from.Server.Name] = true
	if q.needed == 0 || len(o.answers) < q.needed {
		return time.Time{}, false
	}
	delete(q.asked, m.Subject)
	return o.at, true
}
