package proc

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// minSecret is the least length of a secret: a shorter one could not be concealed without spoiling
// all output.
const minSecret = 4

// concealed replaces the value of a secret.
const concealed = "****"

// withhold divides the agent's environment into what workers inherit and the variables that only
// jobs which name them as secrets get.
func withhold(environ, allowed []string) (inherited []string, secrets map[string]string) {
	secrets = map[string]string{}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); slices.Contains(allowed, name) {
			secrets[name] = value
		} else {
			inherited = append(inherited, kv)
		}
	}
	return inherited, secrets
}

// readSecrets returns the values of a worker's secrets by name. The error is a StartError that
// names the secret and no value.
//
// Files are read with the access of the worker's user.
func (d *Driver) readSecrets(s worker.StartProcess) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
		var value string
		err := asUser(s.Account, func() (err error) {
			value, err = d.readSecret(s.Secrets[name])
			return err
		})
		switch {
		case err != nil:
		case len(value) < minSecret:
			err = fmt.Errorf("its value has %d bytes, at least %d are needed", len(value), minSecret)
		case len(value) > limits.Secret.Max:
			err = fmt.Errorf("its value has more than %d bytes (limit %s)", limits.Secret.Max, limits.Secret.Name)
		case strings.ContainsRune(value, 0):
			err = errors.New("its value holds a NUL character, which no variable can")
		}
		if err != nil {
			return nil, &StartError{ExitCode: 126, Detail: fmt.Sprintf("secrets.%s: %v", name, err)}
		}
		values[name] = value
	}
	return values, nil
}

// withSecrets adds the values of secrets to a worker's variables.
func withSecrets(env, secrets map[string]string) map[string]string {
	if len(secrets) == 0 {
		return env
	}
	all := maps.Clone(env)
	maps.Copy(all, secrets)
	return all
}

func (d *Driver) readSecret(source string) (string, error) {
	if name, ok := spec.SecretVariable(source); ok {
		if !slices.Contains(d.opt.AllowSecrets, name) {
			return "", fmt.Errorf("this node's agent does not pass on its variable %s: start it with --allow-secret %[1]s", name)
		}
		value, ok := d.secrets[name]
		if !ok {
			return "", fmt.Errorf("this node's agent has no variable %s", name)
		}
		return value, nil
	}
	path, ok := spec.SecretFile(source)
	if !ok {
		return "", errors.New("is of a kind that this agent does not know: is it older than the client?")
	}
	return readSecretFile(path)
}

// readSecretFile reads a regular file, without the line break at its end. It does not block on a
// FIFO.
func readSecretFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file (%s)", path, info.Mode())
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(limits.Secret.Max)+2)) // a line break, and one byte too many
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

// mask conceals values in text. A nil mask conceals nothing.
type mask struct {
	replace *strings.Replacer
	values  []string // the longest first
}

// minLine is the least length of a line of a value with several lines that is concealed by itself.
const minLine = 8

// newMask returns nil if there is nothing to conceal. Output is split into lines, so the lines of a
// value are concealed too.
func newMask(values map[string]string) *mask {
	var all []string
	for _, v := range values {
		all = append(all, v)
		if lines := strings.FieldsFunc(v, func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) > 1 {
			all = append(all, slices.DeleteFunc(lines, func(l string) bool { return len(strings.TrimSpace(l)) < minLine })...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	// Of values that begin alike, the longer one is tried first.
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range all {
		pairs = append(pairs, v, concealed)
	}
	return &mask{strings.NewReplacer(pairs...), all}
}

func (m *mask) text(s string) string {
	if m == nil {
		return s
	}
	return m.replace.Replace(s)
}

// margin is how much of an incomplete line must be there beyond a cut, so that no value is cut.
func (m *mask) margin() int {
	if m == nil {
		return 0
	}
	return len(m.values[0])
}

// begun is text for the beginning of a line: without an end that may be the beginning of a value.
func (m *mask) begun(s string) string {
	if m == nil {
		return s
	}
	for at := 0; at < len(s); {
		if slices.ContainsFunc(m.values, func(v string) bool { return len(v) > len(s)-at && strings.HasPrefix(v, s[at:]) }) {
			return m.text(s[:at])
		}
		step := 1
		if i := slices.IndexFunc(m.values, func(v string) bool { return strings.HasPrefix(s[at:], v) }); i >= 0 {
			step = len(m.values[i]) // what is concealed is the beginning of nothing
		}
		at += step
	}
	return m.text(s)
}
