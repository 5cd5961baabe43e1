package client

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
)

// Record is where a gateway of this machine is. The gateway leaves it in its state folder, and only
// its user can read it.
type Record struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	PID   int    `json:"pid"`
}

// RecordFile returns the path of the record below a state folder.
func RecordFile(stateDir string) string { return filepath.Join(stateDir, "gateway.json") }

// Find reads the record of the gateway that this user runs; an empty state folder is
// REGROUP_STATE_DIR, or that of the command line. A run beside others has a folder of its own below
// it, so the newest record counts. NotFound = no gateway runs.
func Find(stateDir string) (Record, error) {
	if stateDir == "" {
		stateDir = os.Getenv("REGROUP_STATE_DIR")
	}
	if stateDir == "" {
		stateDir = DefaultStateDir()
	}
	names, err := filepath.Glob(RecordFile(filepath.Join(stateDir, "runs", "*")))
	if err != nil {
		return Record{}, errcode.Errorf(errcode.Invalid, "state folder %q: %w", stateDir, err)
	}
	var newest string
	var at time.Time
	for _, name := range append(names, RecordFile(stateDir)) {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(at) {
			newest, at = name, info.ModTime()
		}
	}
	if newest == "" {
		return Record{}, errcode.Errorf(errcode.NotFound, "no gateway runs here: start one with regroup up --dashboard, run --dashboard or serve gateway, or name one with REGROUP_GATEWAY_URL")
	}
	b, err := os.ReadFile(newest)
	var r Record
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, errcode.Errorf(errcode.Invalid, "%s: %w", newest, err)
	}
	return r, nil
}

// DefaultStateDir returns the state folder of a user who names none: regroup in $XDG_STATE_HOME, or
// in ~/.local/state.
func DefaultStateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "regroup")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "regroup")
	}
	return filepath.Join(os.TempDir(), "regroup")
}
