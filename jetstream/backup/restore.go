package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
)

// Restore makes the streams of a backup, with their consumers, on a server or cluster that has none
// of them. replicas is the number of copies of each stream; 0 = as saved.
//
// The errors are those of Check, and Conflict, with every stream that exists, before anything is
// changed. After any other error some streams are there: begin again with an empty store.
func Restore(ctx context.Context, nc *nats.Conn, dir string, replicas int) (Manifest, error) {
	m, err := Check(dir)
	if err != nil {
		return m, err
	}
	if replicas != 0 && replicas != 1 && replicas != 3 && replicas != 5 {
		return m, events.Errorf(events.Invalid, "replicas: %d: use 1, 3 or 5, or 0 for those of the backup", replicas)
	}
	var exist []string
	for _, s := range m.Streams {
		var info server.JSApiStreamInfoResponse
		if err := ask(ctx, nc, apiInfo+s.Name, nil, &info); err != nil {
			return m, err
		}
		switch err := refusal(info.ApiResponse); {
		case err == nil:
			exist = append(exist, fmt.Sprintf("%s with %d messages", s.Name, info.State.Msgs))
		case !errors.Is(err, events.ErrNotFound):
			return m, err
		}
	}
	if len(exist) > 0 {
		return m, events.Errorf(events.Conflict, "the server is not empty, so nothing was restored: start it with an empty store and --without-streams, and do not use regroup init; it has %s",
			strings.Join(exist, ", "))
	}
	for _, s := range m.Streams {
		if replicas > 0 {
			s.Config.Replicas = replicas
		}
		if err := restoreStream(ctx, nc, dir, s); err != nil {
			return m, events.Errorf(events.CodeOf(err), "restore stream %s: %w; start the server with an empty store before you try again", s.Name, err)
		}
	}
	return m, nil
}

func restoreStream(ctx context.Context, nc *nats.Conn, dir string, s Stream) error {
	f, err := os.Open(filepath.Join(dir, s.File))
	if err != nil {
		return events.Errorf(events.Unavailable, "backup: %w", err)
	}
	defer f.Close()
	var begin server.JSApiStreamRestoreResponse
	if err := ask(ctx, nc, apiRestore+s.Name, server.JSApiStreamRestoreRequest{Config: s.Config, State: s.State}, &begin); err != nil {
		return err
	}
	if err := refusal(begin.ApiResponse); err != nil {
		return err
	}
	for part := make([]byte, chunk); ; {
		n, err := io.ReadFull(f, part)
		if n > 0 {
			var answer server.JSApiStreamCreateResponse
			if err := call(ctx, nc, begin.DeliverSubject, part[:n], &answer); err != nil {
				return err
			}
			if err := refusal(answer.ApiResponse); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return events.Errorf(events.Unavailable, "backup: %w", err)
		}
	}
	var end server.JSApiStreamCreateResponse
	if err := call(ctx, nc, begin.DeliverSubject, nil, &end); err != nil {
		return err
	}
	if err := refusal(end.ApiResponse); err != nil {
		return err
	}
	if end.StreamInfo == nil {
		return events.Errorf(events.Internal, "the server does not say what it has restored")
	}
	if have := end.State; have.LastSeq != s.State.LastSeq {
		return events.Errorf(events.Internal, "its last sequence is %d, want %d", have.LastSeq, s.State.LastSeq)
	}
	return nil
}
