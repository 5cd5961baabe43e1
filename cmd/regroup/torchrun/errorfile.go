package torchrun

import (
	"errors"
	"strings"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/errorreport"
)

// reportError writes why this launcher has failed to a file: where another launcher has started it,
// the error of the first worker to fail is passed on. ended is the job's end, nil if it has
// not ended; err is that of the launcher.
func reportError(path string, ended *events.JobView, err error, now time.Time) error {
	if path == "" || err == nil || errors.Is(err, boot.ErrInterrupted) {
		return nil
	}
	text, stack, at := err.Error(), "", now
	if ended != nil {
		text = ended.Reason
		if first := ended.FirstError; first != nil {
			switch x := first.Exception; {
			case x != nil:
				text = x.Type + ": " + x.Message
			case len(first.Lines) > 0:
				text = first.Lines[len(first.Lines)-1] + ", " + first.Detail
			default:
				text = first.Detail
			}
			stack = strings.Join(first.Lines, "\n")
			if !first.FailedAt.IsZero() {
				at = first.FailedAt
			}
		}
	}
	return errorreport.Write(path, text, stack, at)
}
