package torchrun

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
)

// envErrorFile names the file in which a program under torchrun leaves its error. torchrun itself
// is such a program: where another launcher has set it, that of the first worker to fail is passed
// on.
const envErrorFile = "TORCHELASTIC_ERROR_FILE"

// errorReport is what torch's @record writes.
type errorReport struct {
	Message errorMessage `json:"message"`
}

type errorMessage struct {
	Message string `json:"message"`
	Extra   struct {
		Stack     string `json:"py_callstack"`
		Timestamp string `json:"timestamp"` // Unix seconds
	} `json:"extraInfo"`
}

// reportError writes why this launcher has failed to a file. ended is the job's end, nil if it has
// not ended; err is that of the launcher.
func reportError(path string, ended *events.JobView, err error, now time.Time) error {
	if path == "" || err == nil || errors.Is(err, boot.ErrInterrupted) {
		return nil
	}
	var r errorReport
	r.Message.Message, r.Message.Extra.Timestamp = err.Error(), strconv.FormatInt(now.Unix(), 10)
	if ended != nil {
		r.Message.Message = ended.Reason
		if first := ended.FirstError; first != nil {
			switch x := first.Exception; {
			case x != nil:
				r.Message.Message = x.Type + ": " + x.Message
			case len(first.Lines) > 0:
				r.Message.Message = first.Lines[len(first.Lines)-1] + ", " + first.Detail
			default:
				r.Message.Message = first.Detail
			}
			r.Message.Extra.Stack = strings.Join(first.Lines, "\n")
			if !first.FailedAt.IsZero() {
				r.Message.Extra.Timestamp = strconv.FormatInt(first.FailedAt.Unix(), 10)
			}
		}
	}
	b, marshalErr := json.Marshal(r)
	if marshalErr != nil {
		return marshalErr
	}
	return os.WriteFile(path, b, 0o600)
}
