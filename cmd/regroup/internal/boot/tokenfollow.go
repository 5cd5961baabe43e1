package boot

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// followEvery is how often files are looked at.
const followEvery = time.Second

// TokenFollower takes a token that replaces the one in use while its process runs: in the file that
// the process was given, or in the folder where it keeps the token. It unpacks it there, and the
// connection does the rest.
type TokenFollower struct {
	File  string                    // that has the token; empty = it was given in another way
	Used  Token                     // in use
	Check func(identity.Join) error // returns why a token is not for this process
}

// Run takes tokens until ctx ends.
func (f TokenFollower) Run(ctx context.Context, log *slog.Logger) {
	seen, failed := map[string]string{}, map[string]string{}
	paths := []string{filepath.Join(f.Used.dir, tokenFile)}
	if f.File != "" {
		paths = append(paths, f.File)
	}
	for _, path := range paths {
		seen[path] = f.Used.text
	}
	_ = wait.Every(ctx, followEvery, func(time.Time) error {
		for _, path := range paths {
			text, ok := read(path)
			if !ok || text == seen[path] {
				continue
			}
			kept, err := f.take(text)
			if err == nil || errcode.Of(err) == errcode.Invalid { // else it is tried again
				seen[path] = text
			}
			if err != nil {
				if failed[path] != err.Error() {
					failed[path] = err.Error()
					log.Error("a new join token is not used", "file", path, "reason", err.Error())
				}
				continue
			}
			delete(failed, path)
			seen[paths[0]] = text
			log.Info("a new join token is used", "file", path, "user", kept.User)
			if kept.Servers != f.Used.Servers {
				log.Warn("the brokers that the new join token names are used after the next start", "servers", kept.Servers)
			}
			f.Used = kept
		}
		return nil
	})
}

// take checks a token, keeps it and unpacks it.
func (f TokenFollower) take(text string) (Token, error) {
	j, err := identity.ParseJoin(text)
	if err == nil {
		err = f.Check(j)
	}
	switch {
	case err != nil:
		return Token{}, err
	case j.User != f.Used.User || j.Role != f.Used.Role || j.Node != f.Used.Node:
		return Token{}, errcode.Errorf(errcode.Invalid, "it is of %s (%s), and the one before is of %s (%s): start the agent again with it", j.User, j.Role, f.Used.User, f.Used.Role)
	}
	return KeepToken(f.Used.dir, text)
}

// read returns the token in a file; false if there is none that can be read, as while it is
// replaced.
func read(path string) (string, bool) {
	i, err := os.Stat(path)
	if err != nil || i.Size() > tokenLimit {
		return "", false
	}
	text, err := os.ReadFile(path)
	return compact(string(text)), err == nil && len(text) > 0
}

// compact returns a text without white space, which does not count in a token.
func compact(text string) string { return strings.Join(strings.Fields(text), "") }
