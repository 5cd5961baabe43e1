package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/spawn"
)

// StartError describes why a process could not be started, with a shell's exit code: 127 for a
// command that does not exist, 126 for one that cannot be executed.
type StartError struct {
	ExitCode int
	Detail   string
}

func (e *StartError) Error() string { return e.Detail }

// lookup finds the program in the PATH of the worker's environment, or relative to its directory.
func lookup(command []string, dir string, env []string) (string, error) {
	if len(command) == 0 || command[0] == "" {
		return "", &StartError{ExitCode: 127, Detail: "the command is empty"}
	}
	if dir != "" {
		if i, err := os.Stat(dir); err != nil || !i.IsDir() {
			return "", &StartError{ExitCode: 126, Detail: "no such directory: " + dir}
		}
	}
	name := command[0]
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := executable(path); err != nil {
			return "", named(err, name)
		}
		return filepath.Abs(path)
	}
	var denied error
	for _, p := range filepath.SplitList(value(env, "PATH")) {
		path := filepath.Join(p, name)
		switch err := executable(path); {
		case err == nil && filepath.IsAbs(path):
			return path, nil
		case errors.Is(err, fs.ErrPermission):
			denied = err
		}
	}
	if denied != nil {
		return "", named(denied, name)
	}
	hint := ""
	if strings.HasSuffix(name, ".py") {
		hint = "; a script of Python is started by: python " + name
	}
	return "", &StartError{ExitCode: 127, Detail: "no such file: " + name + " (not found in PATH)" + hint}
}

func executable(path string) error {
	i, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case i.IsDir() || i.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}

func named(err error, name string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &StartError{ExitCode: 127, Detail: "no such file: " + name}
	case errors.Is(err, fs.ErrPermission):
		return &StartError{ExitCode: 126, Detail: "not executable: " + name}
	}
	return &StartError{ExitCode: 126, Detail: fmt.Sprintf("%s: %v", name, err)}
}

// startError explains an error of fork or exec for an existing file.
func startError(err error, s worker.StartProcess) error {
	if spawn.Exhausted(err) {
		return err
	}
	if denied := deniedTo(s.Account, err, s.Command[0], s.Dir); denied != nil {
		return denied
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &StartError{ExitCode: 127, Detail: "no such file: the interpreter of " + s.Command[0]}
	}
	return named(err, s.Command[0])
}

// inherited reports whether a worker may inherit a variable of the agent. Variables that the agent
// sets for workers may come from a launcher under which the agent itself runs, and are not
// inherited. Regroup's own may hold the address and the credentials of the control plane, which no
// worker gets; only the settings of workers are inherited. What systemd waits for from the agent no
// worker may say.
func inherited(name string) bool {
	switch {
	case spec.AgentSets(name), strings.HasPrefix(name, "NATS_"), strings.HasPrefix(name, "HOROVOD_GLOO_RENDEZVOUS_"):
		return false
	case slices.Contains([]string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}, name):
		return false
	case strings.HasPrefix(name, "REGROUP_"):
		return spec.WorkerSetting(name)
	}
	return true
}

// Inherited returns the variables of a command that a worker may inherit when the command's
// environment takes the place of the agent's.
func Inherited(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, value, ok := strings.Cut(kv, "=")
		return !ok || name == "" || !inherited(name) || identifies(name, value)
	})
}

// ofMachine reports whether a variable of the agent says what workers may use of its machine, or
// how they work there: they inherit it also where they inherit the environment of a command that
// does not set it.
func ofMachine(name string) bool {
	return strings.HasSuffix(name, "_VISIBLE_DEVICES") || exports(name) || spec.WorkerSetting(name)
}

// basis returns what the workers of a job inherit: the agent's environment, or that of the command
// that has submitted the job.
func basis(agent []string, from worker.Inherited) []string {
	if from.Variables == nil {
		return agent
	}
	var all []string
	for _, kv := range agent {
		if name, _, _ := strings.Cut(kv, "="); ofMachine(name) {
			all = append(all, kv)
		}
	}
	return append(all, from.Variables...)
}

// environment adds a worker's variables to those that it inherits: the agent's, or those of the
// command that has submitted its job.
func environment(agent []string, s worker.StartProcess) []string {
	base := basis(agent, s.Inherited)
	all := map[string]string{}
	maps.Copy(all, s.Defaults)
	for _, kv := range base {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" && inherited(k) && !identifies(k, v) && (!another(s.Account) || isHarmless(k)) {
			all[k] = v
		}
	}
	if another(s.Account) {
		all["HOME"], all["USER"], all["LOGNAME"] = s.Account.Home, s.Account.Name, s.Account.Name
	}
	maps.Copy(all, s.Env)
	out := make([]string, 0, len(all))
	for k, v := range all {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

func value(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// exporter is the beginning of the variables of OpenTelemetry that say where spans are sent, such
// as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
const exporter = "OTEL_EXPORTER_OTLP_"

// exports reports whether a variable configures the export of spans, so that workers of every user
// inherit it.
func exports(name string) bool { return strings.HasPrefix(name, exporter) }

// identifies reports whether a variable has what the agent proves its identity to a collector with:
// headers, a client certificate with its key, or an endpoint with a password in it. That is meant
// for the agent alone; a job gets it as a secret, if the agent allows that.
func identifies(name, value string) bool {
	rest, ok := strings.CutPrefix(name, exporter)
	if !ok {
		return false
	}
	if strings.HasSuffix(rest, "HEADERS") || strings.Contains(rest, "CLIENT_") {
		return true
	}
	if !strings.HasSuffix(rest, "ENDPOINT") {
		return false
	}
	u, err := url.Parse(value)
	return err != nil || u.User != nil
}
