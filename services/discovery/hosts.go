package discovery

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// Hosts is the content of a host source: which nodes may be used, and with how many slots.
type Hosts struct {
	Lines []HostLine
	node  map[ident.NodeID]int // index of the line by node name
	addr  map[string]int       // index of the line by address
}

// HostLine is one host.
type HostLine struct {
	Host  string // as written, without brackets
	Slots *int   // limit on the slots used; nil = all
}

const (
	mostHostSlots = 1 << 16
	mostFindings  = 20 // limit on the errors reported for one source
)

// parseHosts parses one host per line: "host", "host:slots", "[::1]:slots" or "host slots=4". A #
// begins a comment; empty lines are skipped. perHost is used for lines without a number; 0 = all
// slots of the node. Errors are returned together, 20 at most, and then no hosts.
func parseHosts(text string, perHost int) (Hosts, error) {
	p := newHostParser(perHost)
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			p.line("line "+strconv.Itoa(i+1), i+1, words)
		}
	}
	return p.end()
}

// parseHostList parses a list separated by commas: a:4,b:2.
func parseHostList(text string, perHost int) (Hosts, error) {
	p := newHostParser(perHost)
	for i, part := range strings.Split(text, ",") {
		path := "host " + strconv.Itoa(i+1)
		if words := strings.Fields(part); len(words) > 0 {
			p.line(path, 0, words)
		} else {
			p.wrong(path, 0, "is empty: write host or host:slots, with commas between them")
		}
	}
	return p.end()
}

type hostParser struct {
	hosts   Hosts
	at      []string // position of each line
	perHost *int
	bad     []spec.FieldError
	more    int
}

func newHostParser(perHost int) *hostParser {
	p := &hostParser{hosts: Hosts{node: map[ident.NodeID]int{}, addr: map[string]int{}}}
	if perHost > 0 {
		p.perHost = &perHost
	}
	return p
}

func (p *hostParser) end() (Hosts, error) {
	if p.more > 0 {
		p.bad = append(p.bad, spec.FieldError{Message: fmt.Sprintf("and %d more", p.more)})
	}
	if len(p.bad) > 0 {
		return Hosts{}, errcode.Refuse(p.bad)
	}
	return p.hosts, nil
}

func (p *hostParser) wrong(path string, line int, format string, args ...any) {
	if len(p.bad) == mostFindings {
		p.more++
		return
	}
	p.bad = append(p.bad, spec.FieldError{Path: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (p *hostParser) line(path string, number int, words []string) {
	host, slots, reason := splitHost(words[0])
	if reason != "" {
		p.wrong(path, number, "%s", reason)
		return
	}
	for _, w := range words[1:] {
		value, ok := strings.CutPrefix(w, "slots=")
		switch {
		case !ok:
			p.wrong(path, number, "%q is not understood after the host: only slots=N is", w)
			return
		case slots != "":
			p.wrong(path, number, "the slots of %q are given twice", host)
			return
		}
		if slots = value; slots == "" {
			slots = "?"
		}
	}
	h := HostLine{Host: host, Slots: p.perHost}
	if slots != "" {
		n, err := strconv.Atoi(slots)
		if err != nil || n < 0 || n > mostHostSlots || slots[0] == '+' {
			p.wrong(path, number, "%q is not a number of slots: write 0 to %d", slots, mostHostSlots)
			return
		}
		h.Slots = &n
	}
	node, addr := ident.NodeIDFrom(host), address(host)
	first, again := p.hosts.addr[addr]
	if !again {
		first, again = p.hosts.node[node]
	}
	if again {
		p.wrong(path, number, "%q names the same host as %q of %s: write each host once", host, p.hosts.Lines[first].Host, p.at[first])
		return
	}
	p.hosts.node[node], p.hosts.addr[addr] = len(p.hosts.Lines), len(p.hosts.Lines)
	p.hosts.Lines, p.at = append(p.hosts.Lines, h), append(p.at, path)
}

// splitHost splits a word into host and slots, or returns the reason why it cannot.
func splitHost(word string) (host, slots, reason string) {
	rest := ""
	if strings.HasPrefix(word, "[") {
		var closed bool
		if host, rest, closed = strings.Cut(word[1:], "]"); !closed {
			return "", "", fmt.Sprintf("%q has no closing bracket", word)
		}
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return "", "", fmt.Sprintf("%q is not an IPv6 address", host)
		}
		if rest != "" && rest[0] != ':' {
			return "", "", fmt.Sprintf("%q follows the closing bracket: write [%s]:slots", rest, host)
		}
	} else {
		if strings.Count(word, ":") > 1 {
			return "", "", fmt.Sprintf("%q has several colons: an IPv6 address is written in brackets, [::1] or [::1]:4", word)
		}
		if at := strings.IndexByte(word, ':'); at >= 0 {
			host, rest = word[:at], word[at:]
		} else {
			host = word
		}
		if reason := badHost(host); reason != "" {
			return "", "", reason
		}
	}
	if rest == ":" {
		return "", "", fmt.Sprintf("%q has a colon and no slots", word)
	}
	return host, strings.TrimPrefix(rest, ":"), ""
}

// badHost returns the reason why a name cannot be a host name, or "".
func badHost(host string) string {
	if host == "" {
		return "the host is missing"
	}
	if len(host) > 253 { // RFC 1035
		return fmt.Sprintf("the host has %d characters, at most 253 are allowed", len(host))
	}
	for _, c := range host {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return fmt.Sprintf("%q is not a host: it contains %q", host, string(c))
		}
	}
	if strings.Trim(host, "-._") == "" {
		return fmt.Sprintf("%q is not a host", host)
	}
	return ""
}

func address(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" {
		return "127.0.0.1"
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		if a = a.Unmap(); a.IsLoopback() {
			return "127.0.0.1" // loopback of either family is the same machine
		}
		return a.String()
	}
	return host
}

// Of returns the number of the line that names a node, from 1; 0 = none. A line names a node by its
// name, by the host name from which the node name is derived, or by its advertised address.
func (h Hosts) Of(n ident.NodeID, advertised string) int {
	i, ok := h.node[n]
	if !ok {
		i, ok = h.addr[address(advertised)]
	}
	if !ok {
		return 0
	}
	return i + 1
}
