// Package submitenv keeps the working directories and environments of the commands that have
// submitted jobs, which their workers on this machine inherit: one file of mode 0600 for each, in a
// folder of the agent. A file lives as long as its job, so that later generations, and an agent
// that is started again, have it too. Nothing of it is in events or documents: a job has its name
// alone.
package submitenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/internal/readfile"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// KeepFor is how long an environment is kept that belongs to no job of the node: that job waits, or
// has ended without this agent.
const KeepFor = 7 * 24 * time.Hour

// maxFile bounds what is read of one file.
const maxFile = 4 << 20

const suffix = ".json"

// Environment is what a command hands over.
type Environment struct {
	Jobs      []ident.JobID `json:"jobs"` // the ids that its job may have
	Dir       string        `json:"dir"`
	Variables [][]byte      `json:"variables"` // NAME=VALUE each
}

// Environ returns the variables as package os does.
func (e Environment) Environ() []string {
	all := make([]string, len(e.Variables))
	for i, v := range e.Variables {
		all[i] = string(v)
	}
	return all
}

// Store keeps environments in a folder, by the origins of their jobs' events.
type Store struct{ Dir string }

// Keep stores the environment of the job of an event.
func (s Store) Keep(origin string, e Environment) error {
	path, err := s.path(origin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, b)
}

// Load returns the environment of a job; NotFound if there is none.
func (s Store) Load(origin string, job ident.JobID) (Environment, error) {
	path, err := s.path(origin)
	if err != nil {
		return Environment{}, err
	}
	b, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Environment{}, errcode.Errorf(errcode.NotFound, "they were not handed to this node's agent")
	}
	if err != nil {
		return Environment{}, err
	}
	var e Environment
	if err := json.Unmarshal(b, &e); err != nil {
		return Environment{}, fmt.Errorf("%s: %w", path, err)
	}
	if !slices.Contains(e.Jobs, job) { // another job names what was meant for one
		return Environment{}, errcode.Errorf(errcode.NotFound, "they were handed over for another job")
	}
	return e, nil
}

// Remove forgets the environment of a job; there may be none.
func (s Store) Remove(origin string) error {
	path, err := s.path(origin)
	if err != nil {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Expire removes the environments that have belonged to no job of the node for KeepFor.
func (s Store) Expire(now time.Time, held []ident.JobID) error {
	all, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, f := range all {
		origin := strings.TrimSuffix(f.Name(), suffix) // or what a killed agent has not written to its end
		path := filepath.Join(s.Dir, f.Name())
		info, err := f.Info()
		switch {
		case err != nil: // it has just been removed
		case slices.ContainsFunc(held, func(j ident.JobID) bool { _, err := s.Load(origin, j); return err == nil }):
			err = os.Chtimes(path, now, now)
		case now.Sub(info.ModTime()) > KeepFor:
			err = os.Remove(path)
		}
		if !errors.Is(err, fs.ErrNotExist) { // its job may end meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// path returns the file of an origin, which comes from a job and may be anything.
func (s Store) path(origin string) (string, error) {
	if len(origin) != 32 || strings.Trim(origin, "0123456789abcdef") != "" {
		return "", errcode.Errorf(errcode.Invalid, "%q is not the name of an environment", origin)
	}
	return filepath.Join(s.Dir, origin+suffix), nil
}

// read reads a file that nobody but this user can have written or read.
func read(path string) ([]byte, error) {
	b, info, err := readfile.Regular(path, maxFile, false)
	if err == nil {
		err = readfile.OfUser(info, os.Geteuid())
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s is not a file of the agent's user alone (%s)", path, info.Mode())
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return b, nil
}

// Identify returns what a path is for this process.
func Identify(path string) (workerprotocol.FileID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return workerprotocol.FileID{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return workerprotocol.FileID{}, fmt.Errorf("%s: which file it is cannot be seen", path)
	}
	return workerprotocol.FileID{Device: st.Dev, Inode: st.Ino}, nil
}
