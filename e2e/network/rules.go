package network

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Rule drops packets silently, as a broken cable or a full queue does.
type Rule struct {
	From, To string  // hosts; empty = all others
	Loss     float64 // 1 = every packet, 0.3 = three of ten
}

// Cut drops all packets from one host to another; the other direction works.
func Cut(from, to string) Rule { return Rule{From: from, To: to, Loss: 1} }

// CutBoth drops all packets between two hosts.
func CutBoth(a, b string) []Rule { return []Rule{Cut(a, b), Cut(b, a)} }

// Isolate partitions a host from all others.
func Isolate(host string) []Rule { return []Rule{Cut(host, ""), Cut("", host)} }

// CutOff drops all packets between some hosts and all others.
func (c *Datacenter) CutOff(inside ...string) (rules []Rule) {
	for _, host := range slices.Concat(c.Brokers, c.Controls, c.Nodes) {
		for _, in := range inside {
			if !slices.Contains(inside, host) {
				rules = append(rules, CutBoth(in, host)...)
			}
		}
	}
	return rules
}

// Lossy drops a fraction of a host's packets, in both directions.
func Lossy(host string, share float64) []Rule {
	return []Rule{{From: host, Loss: share}, {To: host, Loss: share}}
}

// Break adds rules.
func (l *Lab) Break(rules ...Rule) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, rules...)
	return l.apply(rules)
}

// Heal removes rules, each once.
func (l *Lab) Heal(rules ...Rule) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rules {
		if i := slices.Index(l.rules, r); i >= 0 {
			l.rules = slices.Delete(l.rules, i, i+1)
		}
	}
	return l.apply(rules)
}

// HealAll removes every rule.
func (l *Lab) HealAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.rules
	l.rules = nil
	return l.apply(old)
}

// apply writes the whole filter of each host that the changed rules touch, in one transaction each.
func (l *Lab) apply(changed []Rule) error {
	var hosts []string
	for _, r := range changed {
		if r.From == "" && r.To == "" || !l.known(r.From) || !l.known(r.To) {
			return fmt.Errorf("network: no such link: %+v", r)
		}
		hosts = append(hosts, r.where())
	}
	slices.Sort(hosts)
	for _, h := range slices.Compact(hosts) {
		if err := l.filter(h); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) known(host string) bool { return host == "" || slices.Contains(l.hosts, host) }

// where is the host that drops: the receiver, or the sender for a rule to all.
func (r Rule) where() string {
	if r.To != "" {
		return r.To
	}
	return r.From
}

func (l *Lab) filter(host string) error {
	var b strings.Builder
	b.WriteString("*filter\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n")
	for _, r := range l.rules {
		if r.where() != host {
			continue
		}
		switch {
		case r.To == "":
			b.WriteString("-A OUTPUT -o " + theirs)
		case r.From == "":
			b.WriteString("-A INPUT -i " + theirs)
		default:
			b.WriteString("-A INPUT -i " + theirs + " -s " + l.address(r.From))
		}
		if r.Loss < 1 {
			b.WriteString(" -m statistic --mode random --probability " + strconv.FormatFloat(r.Loss, 'f', -1, 64))
		}
		b.WriteString(" -j DROP\n")
	}
	b.WriteString("COMMIT\n")
	args := l.On(host, "iptables-restore", "-w")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(b.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("network: filter of %s: %w: %s", host, err, bytes.TrimSpace(out))
	}
	return nil
}
