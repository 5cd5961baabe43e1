package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Kinds of sources of secrets, as they begin.
const (
	fromFile = "file:"
	fromEnv  = "env:"
)

// SecretFile returns the path of a source that is a file.
func SecretFile(source string) (path string, ok bool) { return strings.CutPrefix(source, fromFile) }

// SecretVariable returns the name of a source that is a variable of the agent.
func SecretVariable(source string) (name string, ok bool) {
	return strings.CutPrefix(source, fromEnv)
}

func (s Job) checkSecrets(add func(path, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
		at := JoinPath("secrets", name)
		_, twice := s.Env[name]
		switch {
		case !legalEnv(name):
			add(at, "%s is not a legal variable name: use letters, digits and _, not beginning with a digit", strconv.Quote(name))
		case AgentSets(name) || strings.HasPrefix(name, "REGROUP_"):
			add(at, "is a variable of Regroup: leave it out")
		case twice:
			add(at, "is in env too: leave it out there")
		default:
			if wrong := checkSource(s.Secrets[name]); wrong != "" {
				add(at, "%s", wrong)
			}
		}
	}
}

// checkSource returns what is wrong with the source of a secret, or "". It does not repeat a source
// that it does not understand, which may be the secret itself.
func checkSource(source string) string {
	if file, ok := SecretFile(source); ok {
		switch {
		case !path.IsAbs(file):
			return fmt.Sprintf("%s is not absolute: write file:/path, of a file on every node", strconv.Quote(source))
		case strings.ContainsRune(file, 0):
			return "holds a NUL character"
		}
		return ""
	}
	if name, ok := SecretVariable(source); ok {
		if !legalEnv(name) {
			return fmt.Sprintf("%s names no variable: write env:NAME", strconv.Quote(source))
		}
		return ""
	}
	return "is no source: write file:/path or env:NAME, not the secret itself"
}

// secretWords are the words of which one in a variable's name says that its value is a secret, and
// endings of such words.
var secretWords, secretEndings = []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"}, []string{"APIKEY", "TOKEN", "SECRET", "PASSWORD"}

// LooksSecret reports whether a variable's name says that its value is a secret, such as
// WANDB_API_KEY.
func LooksSecret(name string) bool {
	return slices.ContainsFunc(strings.Split(strings.ToUpper(name), "_"), func(word string) bool {
		return slices.Contains(secretWords, word) || slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(word, end) })
	})
}

// Warnings returns what a job may do and probably should not, a sentence each.
func (s Job) Warnings() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if LooksSecret(name) && legalEnv(name) {
			all = append(all, fmt.Sprintf("env.%s looks like a secret: env is stored and shown with the job. Name a source under secrets instead, %[1]s: file:/path or env:NAME", name))
		}
	}
	return all
}
