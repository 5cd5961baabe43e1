// Package errorfile reads the error file of a program, which TORCHELASTIC_ERROR_FILE names and
// torch's @record writes. The user may want to have it: then kept is the path at which it stays,
// and empty otherwise. A worker of the agent's own user writes to kept directly.
package errorfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/traceback"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/readfile"
)

// read reads an error file. It accepts both forms that torch writes: message as text, or as an
// object with the text and the traceback, from which the exception is made. The program controls
// the path, so the file may be anything: the worker's user must own it, it must have no second hard
// link, and the message describes a file that is too large or cannot be read.
//
// The file is removed unless it is the one that is kept.
//
// raised is when the program wrote it, zero if that is unknown.
func read(path, kept string, who *worker.Account) (message string, x *tables.Exception, raised time.Time) {
	if path == "" {
		return "", nil, raised
	}
	b, info, err := readOf(path, who)
	if path != kept {
		_ = os.Remove(path)
	}
	if os.IsNotExist(err) {
		return "", nil, raised
	}
	if err != nil {
		return "regroup: the error file was not read: " + err.Error(), nil, raised
	}
	raised = info.ModTime()
	if size := info.Size(); size > int64(len(b)) {
		if message := beginning(b); message != "" {
			return fmt.Sprintf("%s … [the error file has %d bytes, %d were read]", message, size, len(b)), nil, raised
		}
		return fmt.Sprintf("regroup: the error file was not read: it has %d bytes (%s)", size, limits.Errors), nil, raised
	}
	var flat struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &flat) == nil {
		return flat.Message, nil, raised
	}
	var deep struct {
		Message struct {
			Message string `json:"message"`
			Extra   struct {
				Stack     string          `json:"py_callstack"`
				Timestamp json.RawMessage `json:"timestamp"`
			} `json:"extraInfo"`
		} `json:"message"`
	}
	if json.Unmarshal(b, &deep) == nil {
		extra := deep.Message.Extra
		return deep.Message.Message, traceback.Parse(extra.Stack), earlier(raised, string(extra.Timestamp))
	}
	return "", nil, raised
}

// earlier returns the time of a timestamp in seconds if the file was written later: a launcher like
// torchrun copies the file of its child. torch writes whole seconds, so the failure was at the
// latest at the end of that second.
func earlier(written time.Time, timestamp string) time.Time {
	seconds, err := strconv.ParseFloat(strings.Trim(timestamp, `"`), 64)
	if err != nil || !(seconds > 0 && seconds <= maxTimestamp) { // it may be no number
		return written
	}
	if seconds == math.Trunc(seconds) {
		seconds++
	}
	if at := time.UnixMicro(int64(seconds * 1e6)); at.Before(written) {
		return at
	}
	return written
}

// maxTimestamp is the last second of the year 9999.
const maxTimestamp = 253402300799

// Record adds the program's error file to an exit. The exception of the file replaces that on
// stderr: if the program is a launcher, its own traceback only says that a child has failed. From
// the time of the error follows how long before the exit the program failed. dir is the worker's
// folder, against which files in the traceback are named.
func Record(x *worker.ProcessExited, path, kept string, who *worker.Account, dir string, now time.Time) {
	message, left, raised := read(path, kept, who)
	if message == "" || (x.ExitCode == 0 && x.Signal == "") {
		return
	}
	if left != nil {
		traceback.Within(left, dir)
		if !raised.IsZero() { // both times are of this machine's clock
			left.BeforeMS = events.Milliseconds(max(0, now.Add(-x.Age).Sub(raised)))
		}
		if x.Exception != nil && x.Exception.Type == left.Type {
			left.BeforeMS = max(left.BeforeMS, x.Exception.BeforeMS) // the same error, seen on stderr
		}
		x.Exception = left
	}
	if !slices.Contains(x.Lines, message) { // else the traceback on stderr has ended with it
		x.Lines = append(x.Lines, message)
	}
}

// Keep copies the error file of a worker that has ended to kept. hide replaces secrets; nil = there
// are none.
func Keep(path, kept string, who *worker.Account, hide func(string) string) error {
	if path == "" || kept == "" || path == kept && hide == nil {
		return nil
	}
	b, info, err := readOf(path, who)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case info.Size() > int64(len(b)):
		err := fmt.Errorf("it has %d bytes (%s)", info.Size(), limits.Errors)
		if path == kept { // it may have secrets
			err = errors.Join(err, os.Remove(kept))
		}
		return err
	case hide != nil:
		b = concealFile(b, hide)
	}
	if err := os.Remove(kept); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := os.OpenFile(kept, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640) // it follows no link
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// concealFile replaces secrets in the decoded texts of an error file: JSON may have escaped them.
func concealFile(b []byte, hide func(string) string) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return []byte(hide(string(b)))
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(concealed(v, hide)) != nil {
		return nil // what was decoded can be encoded
	}
	return bytes.TrimSpace(out.Bytes())
}

func concealed(v any, hide func(string) string) any {
	switch v := v.(type) {
	case string:
		return hide(v)
	case []any:
		for i := range v {
			v[i] = concealed(v[i], hide)
		}
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, x := range v {
			all[hide(key)] = concealed(x, hide)
		}
		return all
	}
	return v
}

// Conceal replaces secrets in what a program says about its end. Package agent/proc has done so in
// its output, not in its error file.
func Conceal(x *worker.ProcessExited, hide func(string) string) {
	for i := range x.Lines {
		x.Lines[i] = hide(x.Lines[i])
	}
	if e := x.Exception; e != nil {
		for _, text := range []*string{&e.Type, &e.Message, &e.File, &e.Function, &e.Cause} {
			*text = hide(*text)
		}
	}
}

// beginning finds the text of a message in truncated JSON.
func beginning(b []byte) string {
	const key = `"message"`
	for {
		_, rest, found := bytes.Cut(b, []byte(key))
		if !found {
			return ""
		}
		b = rest
		text, isText := bytes.CutPrefix(bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimLeft(rest, " "), []byte(":")), " "), []byte(`"`))
		if !isText {
			continue // the text is nested deeper
		}
		for n := len(text); n > 0 && n > len(text)-12; n-- { // an escape sequence may be truncated
			var message string
			if json.Unmarshal(slices.Concat([]byte{'"'}, text[:n], []byte{'"'}), &message) == nil {
				return message
			}
		}
		return ""
	}
}

// readOf reads the first bytes of a file of a worker's user; nil = the agent's own.
func readOf(path string, who *worker.Account) (b []byte, info os.FileInfo, err error) {
	owner := os.Geteuid()
	if who != nil {
		owner = int(who.UID)
	}
	if b, info, err = readfile.Regular(path, limits.Errors.Max, false); err == nil {
		err = readfile.OfUser(info, owner)
	}
	return b, info, err
}
