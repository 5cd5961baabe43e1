// Package errorreport writes the file in which a program leaves its error for the agent or launcher
// that has started it, in the form of torch's @record.
package errorreport

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Env is torch's name of the variable with the path of the file.
const Env = "TORCHELASTIC_ERROR_FILE"

type report struct {
	Message message `json:"message"`
}

type message struct {
	Message string `json:"message"`
	Extra   extra  `json:"extraInfo"`
}

type extra struct {
	Stack     string `json:"py_callstack"`
	Timestamp string `json:"timestamp"` // Unix seconds
}

// Write writes an error of a time to a file: one line, and a traceback as Python prints it.
func Write(path, text, traceback string, at time.Time) error {
	b, err := json.Marshal(report{message{text, extra{traceback, strconv.FormatInt(at.Unix(), 10)}}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// own are the packages whose functions are left out of a traceback.
const own = "github.com/regroup-io/regroup/elastic"

// Raised writes an error of this program, of a type like "reproducible.SilentCorruptionError", with
// the place in the program that has called Regroup. It does nothing where nobody has asked for the
// file.
func Raised(kind, text string) error {
	path := os.Getenv(Env)
	if path == "" {
		return nil
	}
	line := kind + ": " + strings.ReplaceAll(text, "\n", " ")
	at := ""
	pc := make([]uintptr, 32)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for more := true; more && at == ""; {
		var f runtime.Frame
		if f, more = frames.Next(); !strings.HasPrefix(f.Function, own) {
			at = fmt.Sprintf("  File %q, line %d, in %s\n", f.File, f.Line, f.Function)
		}
	}
	if err := Write(path, line, "Traceback (most recent call last):\n"+at+line+"\n", time.Now()); err != nil {
		return errors.Join(errors.New("the error file was not written"), err)
	}
	return nil
}
