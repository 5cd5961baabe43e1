package network

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A lab's namespaces are called rglab-PID-HOST after the process that created them: without the
// process, the lab is a leftover.
const (
	prefix = "rglab-"
	theirs = "eth0"   // a host's link to the switch
	hub    = "switch" // the namespace of the bridge
)

// Lab is a set of hosts behind one switch, in separate network namespaces; this process reaches it
// through one link.
type Lab struct {
	owner string // prefix and pid
	link  string // this process' end of its link
	net   string // 10.x.y., or the beginning of addresses of IPv6 up to the last word
	bits  string // length of its mask

	mu    sync.Mutex
	hosts []string
	rules []Rule
}

// Open removes the labs of dead processes and returns a lab without hosts. With six the hosts have
// addresses of IPv6 alone, where rules cannot be used.
func Open(six bool) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("network: not root: namespaces and packet filters need it (sudo)")
	}
	for _, tool := range []string{"ip", "iptables-restore"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("network: %s is missing: run deploy/setup.sh net", tool)
		}
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	pid := os.Getpid()
	l := &Lab{owner: prefix + strconv.Itoa(pid) + "-", link: "rgl" + strconv.Itoa(pid), bits: "/24"}
	var err error
	if six {
		l.net, l.bits = fmt.Sprintf("fd52:6772:%x:%x::", pid>>16, pid&0xffff), "/64"
	} else if l.net, err = freeNet(pid); err != nil {
		return nil, err
	}
	sw := l.namespace(hub)
	for _, args := range [][]string{
		{"netns", "add", sw},
		{"-n", sw, "link", "add", "name", "hub", "type", "bridge"},
		{"-n", sw, "link", "set", "hub", "up"},
		{"link", "add", l.link, "type", "veth", "peer", "name", "outside", "netns", sw},
		{"-n", sw, "link", "set", "outside", "master", "hub", "up"},
		l.add(l.net+"254", l.link),
		{"link", "set", l.link, "up"},
	} {
		if err := ip(args...); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// add returns the arguments that give a link an address, which can be used at once.
func (l *Lab) add(address, link string) []string {
	args := []string{"addr", "add", address + l.bits, "dev", link}
	if strings.Contains(address, ":") {
		args = append(args, "nodad")
	}
	return args
}

// freeNet finds a /24 in 10.128.0.0/9 without an address of this machine.
func freeNet(seed int) (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for i := range 1 << 15 {
		n := (seed + i) % (1 << 15)
		candidate := fmt.Sprintf("10.%d.%d.", 128+n>>8, n&0xff)
		_, block, err := net.ParseCIDR(candidate + "0/24")
		if err != nil {
			return "", err
		}
		taken := slices.ContainsFunc(addrs, func(a net.Addr) bool {
			used, ok := a.(*net.IPNet)
			return ok && (block.Contains(used.IP) || used.Contains(block.IP))
		})
		if !taken {
			return candidate, nil
		}
	}
	return "", errors.New("network: no free block of addresses below 10.128.0.0/9")
}

// Host adds a host and returns its address.
func (l *Lab) Host(name string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts = append(l.hosts, name)
	address, ns, sw := l.Address(name), l.namespace(name), l.namespace(hub)
	port := fmt.Sprintf("port%d", len(l.hosts))
	for _, args := range [][]string{
		{"netns", "add", ns},
		{"-n", ns, "link", "set", "lo", "up"},
		{"-n", sw, "link", "add", port, "type", "veth", "peer", "name", theirs, "netns", ns},
		{"-n", sw, "link", "set", port, "master", "hub", "up"},
		append([]string{"-n", ns}, l.add(address, theirs)...),
		{"-n", ns, "link", "set", theirs, "up"},
	} {
		if err := ip(args...); err != nil {
			return "", err
		}
	}
	return address, nil
}

// Address returns the address of a host; mu is not needed after all hosts are added.
func (l *Lab) Address(host string) string {
	return l.net + strconv.Itoa(1+slices.Index(l.hosts, host))
}

func (l *Lab) namespace(host string) string { return l.owner + host }

// On returns the arguments that run a program on a host.
func (l *Lab) On(host string, args ...string) []string {
	return append([]string{"ip", "netns", "exec", l.namespace(host)}, args...)
}

// Close kills the remaining processes on the hosts and removes the hosts. Remaining processes are
// an error: the caller must stop them first.
func (l *Lab) Close() error {
	var link error
	if _, err := net.InterfaceByName(l.link); err == nil {
		link = ip("link", "del", l.link)
	}
	left, err := remove(l.owner)
	err = errors.Join(link, err)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("network: processes were left: %s", strings.Join(left, ", ")))
	}
	return err
}

// Sweep removes the labs of ended processes, with the processes in them.
func Sweep() error {
	all, err := namespaces()
	if err != nil {
		return err
	}
	for _, ns := range all {
		owner, _, _ := strings.Cut(strings.TrimPrefix(ns, prefix), "-")
		if pid, e := strconv.Atoi(owner); e == nil && syscall.Kill(pid, 0) != nil {
			_, e := remove(prefix + owner + "-")
			err = errors.Join(err, e)
		}
	}
	return err
}

// namespaces lists the namespaces of all labs.
func namespaces() ([]string, error) {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return nil, fmt.Errorf("network: ip netns list: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 0 && strings.HasPrefix(f[0], prefix) {
			all = append(all, f[0])
		}
	}
	return all, nil
}

// remove removes the lab whose namespaces have a prefix and returns the processes that it had to
// kill.
func remove(owner string) (left []string, err error) {
	all, err := namespaces()
	if err != nil {
		return nil, err
	}
	for _, ns := range all {
		if !strings.HasPrefix(ns, owner) {
			continue
		}
		pids, e := processes(ns)
		err = errors.Join(err, e)
		for _, pid := range pids {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // the process may have ended meanwhile
			left = append(left, fmt.Sprintf("%s (%d, on %s)", bytes.TrimSpace(name), pid, ns))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		err = errors.Join(err, ip("netns", "del", ns))
	}
	return left, err
}

// processes lists those in a namespace.
func processes(ns string) (pids []int, err error) {
	out, err := exec.Command("ip", "netns", "pids", ns).Output()
	if err != nil {
		return nil, fmt.Errorf("network: processes of %s: %w", ns, err)
	}
	for _, field := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("network: ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

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
			b.WriteString("-A INPUT -i " + theirs + " -s " + l.Address(r.From))
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
