package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/jetstream"
)

// slowName is how long the host's name may take to resolve: each process group looks it up.
const slowName = time.Second

// resolved is what a look-up of the host's name has returned.
type resolved struct {
	name  string
	found []net.IP
	err   error
	took  time.Duration
}

func resolve(ctx context.Context, name string) resolved {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	begin := time.Now()
	found, err := net.DefaultResolver.LookupIPAddr(ctx, name)
	r := resolved{name: name, err: err, took: time.Since(begin)}
	for _, a := range found {
		r.found = append(r.found, a.IP)
	}
	return r
}

// checkName judges how the host's name is resolved.
func checkName(r resolved) finding {
	const address = "give nodes their address: regroup torchrun --local-addr ADDRESS, and export GLOO_SOCKET_IFNAME=INTERFACE; or write the address of this host to /etc/hosts"
	var texts []string
	for _, ip := range r.found {
		texts = append(texts, ip.String())
	}
	found := fmt.Sprintf("%s is %s", r.name, strings.Join(texts, ", "))
	switch {
	case r.err != nil || len(r.found) == 0:
		return finding{"host name", problem, fmt.Sprintf("%s does not resolve: gloo uses the loopback interface, which no other node reaches", r.name), address}
	case !slices.ContainsFunc(r.found, func(ip net.IP) bool { return !ip.IsLoopback() }):
		return finding{"host name", note, found + " only: gloo listens there, and other nodes cannot reach it by name", address}
	case r.took > slowName:
		return finding{"host name", note, fmt.Sprintf("%s, after %.1fs", found, r.took.Seconds()), "a name server does not answer: write this host to /etc/hosts, or mend /etc/resolv.conf"}
	}
	return fine("host name", "%s", found)
}

// interfaceVariables name the network interfaces of gloo, NCCL and TensorPipe.
var interfaceVariables = []string{"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}

// checkInterfaces judges the interfaces that variables name. up holds those of this machine, and
// whether they are up.
func checkInterfaces(getenv func(string) string, up map[string]bool) (all []finding) {
	for _, variable := range interfaceVariables {
		value := getenv(variable)
		if value == "" {
			continue
		}
		why := ""
		if nccl := variable == "NCCL_SOCKET_IFNAME"; nccl {
			why = checkNCCLNames(value, up)
		} else {
			for name := range strings.SplitSeq(value, ",") {
				isUp, exists := up[strings.TrimSpace(name)]
				switch {
				case !exists:
					why = fmt.Sprintf("%q does not exist", name)
				case !isUp:
					why = fmt.Sprintf("%s is down", name)
				}
			}
		}
		if why == "" {
			all = append(all, fine("interface", "%s=%s", variable, value))
			continue
		}
		var usable []string
		for name, isUp := range up {
			if isUp {
				usable = append(usable, name)
			}
		}
		slices.Sort(usable)
		all = append(all, finding{"interface", problem, fmt.Sprintf("%s=%s: %s", variable, value, why), fmt.Sprintf("unset %s, or name one of %s", variable, strings.Join(usable, ", "))})
	}
	if all == nil {
		all = append(all, fine("interface", "none is named: libraries choose"))
	}
	return all
}

// checkNCCLNames returns why no interface is selected. NCCL takes beginnings of names, whole names
// after =, and excludes those after ^.
func checkNCCLNames(value string, up map[string]bool) string {
	list, exclude := strings.CutPrefix(value, "^")
	list, exact := strings.CutPrefix(list, "=")
	for name, isUp := range up {
		named := slices.ContainsFunc(strings.Split(list, ","), func(n string) bool {
			return n == name || !exact && strings.HasPrefix(name, n)
		})
		if isUp && named != exclude {
			return ""
		}
	}
	return "it selects no interface that is up"
}

// checkPorts judges whether the ports that launchers use by default are free. listen tries one.
func checkPorts(masterPort string, listen func(port string) error) (all []finding) {
	ports := []string{"29500", "29400"}
	if masterPort != "" && !slices.Contains(ports, masterPort) {
		ports = append(ports, masterPort)
	}
	for _, port := range ports {
		err := listen(port)
		switch {
		case err == nil:
			all = append(all, fine("port "+port, "free"))
		case errors.Is(err, syscall.EADDRINUSE):
			all = append(all, finding{"port " + port, note, "another process listens there", "for a second job choose another: --master-port, or --rdzv-endpoint HOST:PORT. Who has it: ss -ltnp 'sport = :" + port + "'"})
		default:
			all = append(all, finding{"port " + port, note, "cannot be used: " + err.Error(), "choose another: --master-port, or --rdzv-endpoint HOST:PORT"})
		}
	}
	return all
}

// fewPorts is the size of the range of ports below which many connections may exhaust it.
const fewPorts = 4000

// checkPortRange judges the content of ip_local_port_range; empty = unknown.
func checkPortRange(text string) finding {
	f := strings.Fields(text)
	if len(f) != 2 {
		return fine("port range", "unknown")
	}
	low, err1 := strconv.Atoi(f[0])
	high, err2 := strconv.Atoi(f[1])
	if err1 != nil || err2 != nil {
		return fine("port range", "unknown")
	}
	if n := high - low + 1; n < fewPorts {
		return finding{"port range", problem, fmt.Sprintf("%d ports for outgoing connections and for listening on any port (%d to %d)", n, low, high), "sysctl -w net.ipv4.ip_local_port_range='32768 60999'"}
	}
	return fine("port range", "%d to %d", low, high)
}

// checkAdvertised judges whether this node can listen on the address under which others reach it.
func checkAdvertised(host string, listen func(host string) error) finding {
	if err := listen(host); err != nil {
		return finding{"advertised address", problem, fmt.Sprintf("%s: %s", host, err), "name an address of this machine: regroup torchrun --local-addr ADDRESS, or REGROUP_AGENT_ADVERTISE"}
	}
	return fine("advertised address", "%s", host)
}

// checkServer judges whether the configured server answers; empty = none is configured, and local
// says whether one of this user runs here.
func checkServer(url string, local bool, connect func() error) finding {
	if url == "" && !local {
		return fine("server", "none is configured: a job has its own")
	}
	url = cmp.Or(url, "regroup up on this machine")
	err := connect()
	if errors.Is(err, jetstream.ErrRefused) {
		return finding{"server", problem, err.Error(), "name what admits you (--creds, REGROUP_SECRET, a context); for regroup up on this machine leave the server out"}
	}
	if err != nil {
		return finding{"server", problem, err.Error(), "start it (regroup up, or regroup serve nats), name another (--server, REGROUP_SERVER, regroup context), or none: --server ''"}
	}
	return fine("server", "%s answers", url)
}

// clockMost is how far a clock may be from the server's: no more than the second to which times are
// shown.
const clockMost = time.Second

// checkClock judges how far this clock is ahead of the server's, which is known to within the time
// that the answer took.
func checkClock(ahead, within time.Duration) finding {
	of := "ahead of"
	if ahead < 0 {
		ahead, of = -ahead, "behind"
	}
	switch {
	case ahead > clockMost+within:
		return finding{
			"clock", note, fmt.Sprintf("%s %s that of the server", ahead.Round(time.Millisecond), of),
			"synchronize the clocks (systemd-timesyncd, chrony): recovery does not need it, but times of traces and outputs differ by that",
		}
	case ahead <= within:
		return fine("clock", "that of the server, to %s", max(within, time.Millisecond).Round(time.Millisecond))
	}
	return fine("clock", "%s %s that of the server, to %s", ahead.Round(time.Millisecond), of, max(within, time.Millisecond).Round(time.Millisecond))
}
