package proc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/readfile"
)

// minSecret is the least length of a secret: a shorter one could not be concealed without spoiling
// all output.
const minSecret = 4

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
	b, _, err := readfile.Regular(path, limits.Secret.Max+2, true) // a line break, and one byte too many
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), err
}
