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

	"github.com/regroup-io/regroup/events"
)

// errorFile reads the error that a program left in TORCHELASTIC_ERROR_FILE (written by torch's @record); the file is removed. Both
// shapes that torch writes are understood: message as text, or with the text inside. The path is the program's to fill: what is
// there may be anything, and what cannot be an error is said instead of one.
func errorFile(path string) string {
	if path == "" {
		return ""
	}
	b, size, err := readErrorFile(path)
	_ = os.Remove(path)
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		return "regroup: the error file was not read: " + err.Error()
	}
	if size > int64(len(b)) {
		if says := beginning(b); says != "" {
			return fmt.Sprintf("%s … [the error file has %d bytes, %d were read]", says, size, len(b))
		}
		return fmt.Sprintf("regroup: the error file was not read: it has %d bytes (%s)", size, events.LimitErrors)
	}
	var flat struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &flat) == nil {
		return flat.Message
	}
	var deep struct {
		Message struct {
			Message string `json:"message"`
		} `json:"message"`
	}
	if json.Unmarshal(b, &deep) == nil {
		return deep.Message.Message
	}
	return ""
}

// beginning finds the text of a message in JSON that was cut off.
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
			continue // the text is further in
		}
		for n := len(text); n > 0 && n > len(text)-12; n-- { // an escape may have been cut through
			var says string
			if json.Unmarshal(slices.Concat([]byte{'"'}, text[:n], []byte{'"'}), &says) == nil {
				return says
			}
		}
		return ""
	}
}

// readErrorFile reads the first bytes of a regular file and says how many it has: no link is followed, and nothing that waits for a
// writer is opened for long.
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
	b, err = io.ReadAll(io.LimitReader(f, int64(events.LimitErrors.Most)))
	return b, info.Size(), err
}
