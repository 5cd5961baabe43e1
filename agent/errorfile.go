package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/regroup-io/regroup/agent/traceback"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
)

// errorFile reads and removes the error that a program has written to TORCHELASTIC_ERROR_FILE (as
// torch's @record does). It accepts both forms that torch writes: message as text, or as an object
// with the text and the traceback, from which the exception is made. The program controls the path,
// so the file may be anything; invalid content is described instead.
func errorFile(path string) (says string, x *events.Exception) {
	if path == "" {
		return "", nil
	}
	b, size, err := readErrorFile(path)
	_ = os.Remove(path)
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "regroup: the error file was not read: " + err.Error(), nil
	}
	if size > int64(len(b)) {
		if says := beginning(b); says != "" {
			return fmt.Sprintf("%s … [the error file has %d bytes, %d were read]", says, size, len(b)), nil
		}
		return fmt.Sprintf("regroup: the error file was not read: it has %d bytes (%s)", size, limits.Errors), nil
	}
	var flat struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &flat) == nil {
		return flat.Message, nil
	}
	var deep struct {
		Message struct {
			Message string `json:"message"`
			Extra   struct {
				Stack string `json:"py_callstack"`
			} `json:"extraInfo"`
		} `json:"message"`
	}
	if json.Unmarshal(b, &deep) == nil {
		return deep.Message.Message, traceback.Parse(deep.Message.Extra.Stack)
	}
	return "", nil
}

// recorded adds the program's error file to an exit. It takes precedence for a launcher within the
// program, whose own traceback only says that a child has failed.
func recorded(x *worker.ProcessExited, path, dir string) {
	says, left := errorFile(path)
	if says == "" || (x.ExitCode == 0 && x.Signal == "") {
		return
	}
	if left != nil {
		traceback.Within(left, dir)
		if x.Exception != nil && x.Exception.Type == left.Type {
			left.BeforeMS = x.Exception.BeforeMS
		}
		x.Exception = left
	}
	if !slices.Contains(x.Lines, says) { // otherwise the traceback on stderr ends with it
		x.Lines = append(x.Lines, says)
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
			var says string
			if json.Unmarshal(slices.Concat([]byte{'"'}, text[:n], []byte{'"'}), &says) == nil {
				return says
			}
		}
		return ""
	}
}

// readErrorFile reads the first bytes of a regular file and returns its size. It follows no link
// and does not block on a FIFO.
func readErrorFile(path string) (b []byte, size int64, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, 0, errors.New("it is a link")
	}
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("it is no regular file (%s)", info.Mode())
	}
	b, err = io.ReadAll(io.LimitReader(f, int64(limits.Errors.Max)))
	return b, info.Size(), err
}
