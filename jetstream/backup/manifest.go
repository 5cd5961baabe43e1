// Package backup copies the streams of a cluster into a directory and back, with the snapshots that
// a NATS server makes of a stream and its consumers. docs/adr/0034 says why the copies fit
// together.
//
//	Save    streams -> directory, while the cluster runs
//	Check   is the directory complete and unchanged? Needs no server
//	Restore directory -> a server that has none of the streams
package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/internal/english"
)

const (
	// ManifestFile is the file of a backup that lists the others. It is written last: a directory
	// without it is not a backup.
	ManifestFile = "backup.json"
	// format is raised when a version could no longer read the directories of the one before.
	format = 1

	dirMode  = 0o700 // documents have environments of jobs
	fileMode = 0o600
)

// Manifest describes a backup.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program that made it
	Made    time.Time `json:"made"`    // when its copies were found to fit together
	Streams []Stream  `json:"streams"`
}

// Stream describes the copy of one stream.
type Stream struct {
	Name   string              `json:"name"`
	File   string              `json:"file"`   // in the directory
	Bytes  int64               `json:"bytes"`  // of the file
	SHA256 string              `json:"sha256"` // of the file, in hexadecimal
	Config server.StreamConfig `json:"config"`
	State  server.StreamState  `json:"state"`
}

// Bytes returns the size of all files of the backup, without the manifest.
func (m Manifest) Bytes() (n int64) {
	for _, s := range m.Streams {
		n += s.Bytes
	}
	return n
}

// Check reads a backup and compares every file with its checksum; NotFound if there is no backup in
// the directory, Invalid with everything that is wrong with it.
func Check(dir string) (Manifest, error) {
	var m Manifest
	data, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return m, errcode.Errorf(errcode.NotFound, "%s: there is no complete backup: it has no %s", dir, ManifestFile)
	}
	if err != nil {
		return m, errcode.Errorf(errcode.Unavailable, "backup: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, errcode.Errorf(errcode.Invalid, "%s: %w", filepath.Join(dir, ManifestFile), err)
	}
	if m.Format != format {
		return m, errcode.Errorf(errcode.Invalid, "%s: format is %d, and this version reads %d: use regroup %s", dir, m.Format, format, m.Version)
	}
	var found []string
	have := map[string]int{}
	for _, s := range m.Streams {
		have[s.Name]++
		if !slices.Contains(events.Streams(), s.Name) {
			found = append(found, s.Name+" is no stream of this version")
		}
		if s.File != fileOf(s.Name) {
			found = append(found, fmt.Sprintf("%s: file is %q, want %q", s.Name, s.File, fileOf(s.Name)))
			continue
		}
		bytes, sum, err := hash(filepath.Join(dir, s.File))
		switch {
		case err != nil:
			found = append(found, err.Error())
		case bytes != s.Bytes:
			found = append(found, fmt.Sprintf("%s has %d bytes, want %d", s.File, bytes, s.Bytes))
		case sum != s.SHA256:
			found = append(found, s.File+" was changed: its checksum is another")
		}
	}
	for _, name := range events.Streams() {
		if have[name] != 1 {
			found = append(found, fmt.Sprintf("stream %s is there %s, want once", name, english.Plural(have[name], "time")))
		}
	}
	if len(found) > 0 {
		return m, errcode.Errorf(errcode.Invalid, "%s is damaged: %s", dir, strings.Join(found, "; "))
	}
	return m, nil
}

func fileOf(stream string) string { return stream + ".snapshot" }

func hash(file string) (int64, string, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return n, hex.EncodeToString(h.Sum(nil)), err
}

// write stores the manifest so that it is there whole or not at all.
func (m Manifest) write(dir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, ManifestFile), append(data, '\n'))
}
