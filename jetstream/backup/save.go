package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
)

const (
	apiInfo     = "$JS.API.STREAM.INFO."
	apiSnapshot = "$JS.API.STREAM.SNAPSHOT."
	apiRestore  = "$JS.API.STREAM.RESTORE."

	// answerLimit bounds the wait for the next message of a server: that of a replicated stream
	// whose leader has died answers after an election.
	answerLimit = 10 * time.Second
	// chunk is the size of the parts in which a snapshot is sent, in bytes; the default of servers.
	chunk = 128 << 10
	// headerStatus is the header of the last message of a snapshot.
	headerStatus, statusEnd = "Status", "204"
)

// Save copies all streams and their consumers into a directory, which is made, or empty but for
// what an earlier attempt has left that was killed. It repeats the copies until no document has
// changed while they were made, at most until ctx ends. After an error nothing of the attempt is
// left.
//
// Conflict if the directory is not empty, or another backup is being made there; NotFound if a
// stream does not exist; Unavailable if the documents did not stop to change, or a server does not
// answer.
func Save(ctx context.Context, nc *nats.Conn, dir, version string) (m Manifest, err error) {
	into, err := openTarget(dir)
	if err != nil {
		return m, err
	}
	defer func() { into.close(err != nil) }()
	m = Manifest{Format: format, Version: version}
	var free, bound []Stream
	if free, err = saveAll(ctx, nc, dir, independent); err != nil {
		return m, err
	}
	var changed *changedError
	for attempt := 0; ; attempt++ {
		if bound, err = saveOnce(ctx, nc, dir); err == nil {
			break
		}
		errors.As(err, &changed) // the last attempt may have ended with ctx
		switch {
		case changed != nil && ctx.Err() != nil:
			return m, errcode.Errorf(errcode.Unavailable, "%w during %s, so they may contradict each other: give more time with --within, or stop the services meanwhile (workers train on)", changed, eachText(max(attempt, 1)))
		case ctx.Err() != nil || !errors.As(err, new(*changedError)):
			return m, err
		}
	}
	m.Streams, m.Made = slices.Concat(free, bound), time.Now().UTC()
	if err := m.write(dir); err != nil {
		return m, errcode.Errorf(errcode.Unavailable, "backup: %w", err)
	}
	return m, nil
}

// eachText formats the attempts.
func eachText(n int) string {
	if n == 1 {
		return "the copy"
	}
	return "each of " + english.Plural(n, "copy")
}

// changedError says that a document was stored while copies were made.
type changedError struct{ stream string }

func (e *changedError) Error() string { return "a document in " + e.stream + " has changed" }

// independent are the streams that no decision depends on: their copies fit to any others.
var independent = []string{events.StreamLogs, events.StreamSpans}

// saveOnce copies the streams that decisions depend on; changedError if their copies may not fit
// together.
func saveOnce(ctx context.Context, nc *nats.Conn, dir string) ([]Stream, error) {
	before, err := positions(ctx, nc)
	if err != nil {
		return nil, err
	}
	all, err := saveAll(ctx, nc, dir, slices.DeleteFunc(events.Streams(), func(name string) bool { return slices.Contains(independent, name) }))
	if err != nil {
		return nil, err
	}
	after, err := positions(ctx, nc)
	if err != nil {
		return nil, err
	}
	for name, last := range before {
		if after[name] != last {
			return nil, &changedError{name}
		}
	}
	return all, nil
}

func saveAll(ctx context.Context, nc *nats.Conn, dir string, names []string) ([]Stream, error) {
	var all []Stream
	for _, name := range names {
		s, err := saveStream(ctx, nc, dir, name)
		if err != nil {
			return nil, fmt.Errorf("copy stream %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// positions returns the last sequence of each bucket, which every change of a document raises.
func positions(ctx context.Context, nc *nats.Conn) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, s := range events.Services() {
		name := events.BucketStream(s.Bucket)
		var info server.JSApiStreamInfoResponse
		if err := ask(ctx, nc, apiInfo+name, nil, &info); err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, err)
		}
		all[name] = info.State.LastSeq
	}
	return all, nil
}

func saveStream(ctx context.Context, nc *nats.Conn, dir, name string) (Stream, error) {
	s := Stream{Name: name, File: fileOf(name)}
	for attempt := 1; ; attempt++ {
		f, err := os.OpenFile(filepath.Join(dir, s.File), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
		if err != nil {
			return s, errcode.Errorf(errcode.Unavailable, "backup: %w", err)
		}
		sum := sha256.New()
		s.Bytes = 0
		err = snapshot(ctx, nc, &s, io.MultiWriter(f, sum))
		s.SHA256 = hex.EncodeToString(sum.Sum(nil))
		if err == nil {
			if err = f.Sync(); err != nil {
				err = errcode.Errorf(errcode.Unavailable, "backup: %w", err)
			}
		}
		_ = f.Close() // it is synced, or of no use
		if !errors.As(err, new(*endedError)) || attempt == copyAttempts || ctx.Err() != nil {
			return s, err
		}
	}
}

// copyAttempts is how often the copy of a stream is begun that the server ends early: with the
// stream it copies its consumers, of which one may be removed meanwhile.
const copyAttempts = 10

// endedError says that the server has ended a copy before its end.
type endedError struct{ stream, status, reason string }

func (e *endedError) Error() string {
	return fmt.Sprintf("the server ended the copy of %s: %s %s", e.stream, e.status, e.reason)
}

// snapshot writes the snapshot of a stream as its server sends it.
func snapshot(ctx context.Context, nc *nats.Conn, s *Stream, to io.Writer) error {
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = inbox.Unsubscribe() }() // the connection may have ended
	var answer server.JSApiStreamSnapshotResponse
	request := server.JSApiStreamSnapshotRequest{DeliverSubject: inbox.Subject, ChunkSize: chunk, CheckMsgs: true}
	if err := ask(ctx, nc, apiSnapshot+s.Name, request, &answer); err != nil {
		return err
	}
	if answer.Config == nil || answer.State == nil {
		return errcode.Errorf(errcode.Internal, "the server has sent no configuration of stream %s", s.Name)
	}
	s.Config, s.State = *answer.Config, *answer.State
	for {
		m, err := next(ctx, inbox)
		if err != nil {
			return err
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get(headerStatus); status != "" && status != statusEnd {
				return errcode.Errorf(errcode.Unavailable, "%w", &endedError{s.Name, status, m.Header.Get("Description")})
			}
			return nil
		}
		if _, err := to.Write(m.Data); err != nil {
			return errcode.Errorf(errcode.Unavailable, "backup: %w", err)
		}
		s.Bytes += int64(len(m.Data))
		if m.Reply != "" {
			if err := nc.Publish(m.Reply, nil); err != nil {
				return err
			}
		}
	}
}

func next(ctx context.Context, inbox *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	m, err := inbox.NextMsgWithContext(ctx)
	if err != nil {
		return nil, errcode.Errorf(errcode.Unavailable, "the server sends no more: %w", err)
	}
	return m, nil
}

// ask sends a request to the API of JetStream and decodes its answer; a refusal is an error, with
// an apiError as its cause.
func ask(ctx context.Context, nc *nats.Conn, subject string, request, answer any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	return call(ctx, nc, subject, body, answer)
}

// call sends a message and decodes the answer like ask, unless it is empty.
func call(ctx context.Context, nc *nats.Conn, subject string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return errcode.Errorf(errcode.Unavailable, "no answer to %s: does this user have the permissions of the operator? %w", subject, err)
	}
	if len(m.Data) == 0 {
		return nil
	}
	var refused server.ApiResponse
	if err := errors.Join(json.Unmarshal(m.Data, &refused), json.Unmarshal(m.Data, answer)); err != nil {
		return errcode.Errorf(errcode.Internal, "answer to %s: %w", subject, err)
	}
	switch {
	case refused.Error == nil:
		return nil
	case refused.Error.ErrCode == uint16(server.JSStreamNotFoundErr):
		return errcode.Errorf(errcode.NotFound, "%w: make the streams with regroup init", apiError{refused.Error})
	}
	return errcode.Errorf(errcode.Unavailable, "the server refuses: %w", apiError{refused.Error})
}

// apiError is what a server refuses, with its description as the text.
type apiError struct{ *server.ApiError }

func (e apiError) Error() string { return e.Description }
