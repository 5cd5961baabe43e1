package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/spawn"
)

// HostConfig configures the source of the host list; at most one may be set. Without a source every
// node with an agent is used. All replicas should have the same configuration.
type HostConfig struct {
	Hosts      string        `envconfig:"HOSTS" flag:"hosts" usage:"use only these nodes: a:4,b:2 (%); default: every node with an agent" desc:"use only these nodes: a:4,b:2; empty = every node with an agent"`
	HostFile   string        `envconfig:"HOST_FILE" flag:"host-file" usage:"use only the nodes in this file: a line is host, host:slots or host slots=4 (%)" desc:"use only the nodes of this file, which is read every period: a line is host, host:slots or host slots=4"`
	HostScript string        `envconfig:"HOST_DISCOVERY_SCRIPT" flag:"host-discovery-script" usage:"use only the nodes that this program prints, asked again and again (%)" desc:"use only the nodes that this program prints, in the same format; a program, or a shell command"`
	HostEvery  time.Duration `envconfig:"HOST_PERIOD" flag:"host-period" usage:"time from an answer of the file or script to the next question (%)" default:"1s" desc:"time between reads of the file or runs of the script"`
	HostWithin time.Duration `envconfig:"HOST_TIMEOUT" flag:"host-timeout" usage:"a script that takes longer has failed (%)" default:"10s" desc:"timeout of the script, which is then killed"`
	PerHost    int           `envconfig:"SLOTS_PER_HOST" flag:"slots-per-host" usage:"slots of hosts that are given without a number (%); default: all that the node has" desc:"slots of hosts without a number; 0 = all slots of the node"`
}

func defaultHosts() HostConfig {
	return HostConfig{HostEvery: time.Second, HostWithin: 10 * time.Second}
}

// Listed reports whether there is a host list.
func (c HostConfig) Listed() bool { return c.Hosts != "" || c.HostFile != "" || c.HostScript != "" }

func (c HostConfig) validate(fault func(wrong bool, format string, args ...any)) {
	var given []string
	for _, s := range []struct{ name, value string }{
		{"hosts", c.Hosts}, {"host file", c.HostFile}, {"host discovery script", c.HostScript},
	} {
		if s.value != "" {
			given = append(given, s.name)
		}
	}
	fault(len(given) > 1, "%s are given: only one of them can say which hosts to use", strings.Join(given, " and "))
	fault(c.PerHost < 0, "slots per host is %d: 0 or more", c.PerHost)
	fault(c.Listed() && c.HostEvery <= 0, "the host period is %s: it must be positive", c.HostEvery)
	fault(c.Listed() && c.HostWithin <= 0, "the host timeout is %s: it must be positive", c.HostWithin)
	if c.Hosts != "" && len(given) == 1 {
		_, err := parseHostList(c.Hosts, c.PerHost)
		fault(err != nil, "hosts: %v", err)
	}
}

// Ask reads the source once.
func (c HostConfig) Ask(ctx context.Context) (Hosts, error) {
	switch {
	case c.Hosts != "":
		return parseHostList(c.Hosts, c.PerHost)
	case c.HostFile != "":
		text, err := readHosts(c.HostFile)
		if err != nil {
			return Hosts{}, errcode.Errorf(errcode.Unavailable, "host file: %w", err)
		}
		h, err := parseHosts(text, c.PerHost)
		if err != nil {
			return Hosts{}, errcode.Errorf(errcode.Invalid, "host file %s: %w", c.HostFile, err)
		}
		return h, nil
	}
	text, err := c.run(ctx)
	if err != nil {
		return Hosts{}, errcode.Errorf(errcode.Unavailable, "host discovery script %s: %w", c.HostScript, err)
	}
	h, err := parseHosts(text, c.PerHost)
	if err != nil {
		return Hosts{}, errcode.Errorf(errcode.Invalid, "host discovery script %s: its answer: %w", c.HostScript, err)
	}
	return h, nil
}

// unnamed returns the reason for a node that is not in the list.
func (c HostConfig) unnamed() string {
	switch {
	case c.Hosts != "":
		return "the list of hosts does not name it"
	case c.HostFile != "":
		return "no line of " + c.HostFile + " names it"
	}
	return "the host discovery script does not name it"
}

// empty returns the reason for all nodes if the list is empty.
func (c HostConfig) empty() string {
	if c.HostFile != "" && c.Hosts == "" {
		return c.HostFile + " names no host"
	}
	return "the host discovery script names no host"
}

// mostHosts limits the size of a source in bytes.
const mostHosts = 1 << 20

var errTooLong = fmt.Errorf("it says more than %d bytes", mostHosts)

func readHosts(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, mostHosts+1))
	if err == nil && len(text) > mostHosts {
		err = errTooLong
	}
	return string(text), err
}

// run runs the script in a process group and kills the group when the context ends.
func (c HostConfig) run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.HostWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.HostScript)
	if _, err := exec.LookPath(c.HostScript); err != nil && strings.ContainsAny(c.HostScript, " \t|;&$") {
		cmd = exec.CommandContext(ctx, "/bin/sh", "-c", c.HostScript)
	}
	out, stderr := bounded{most: mostHosts}, bounded{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a child of the script may keep the pipe open
	err := spawn.Start(cmd)     // an agent of this process may be starting a marked worker
	if err == nil {
		err = cmd.Wait()
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("no answer within %s", c.HostWithin)
	case err != nil:
		if line, _, _ := strings.Cut(strings.TrimSpace(stderr.kept.String()), "\n"); line != "" {
			return "", fmt.Errorf("%w: %s", err, line)
		}
		return "", err
	case out.over:
		return "", errTooLong
	}
	return out.kept.String(), nil
}

// bounded keeps the beginning of the output.
type bounded struct {
	kept bytes.Buffer // not embedded: its ReadFrom would bypass Write
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - b.kept.Len()
	if len(p) > room {
		b.over = true
	}
	b.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}
