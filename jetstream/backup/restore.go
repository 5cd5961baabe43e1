package backup

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/wait"
)

const (
	electionLimit   = time.Minute
	electionAttempt = time.Second
	electionPause   = 100 * time.Millisecond
	// abandoned is more than the time after which a server gives up a restoration for which nothing
	// is sent (5 s, nats-server, jetstream_api.go).
	abandoned = 6 * time.Second
)

// Restore makes the streams of a backup, with their consumers, on a server or cluster that has none
// of them. replicas is the number of copies of each stream; 0 = as saved.
//
// It waits for servers that have just started: until they have elected a leader, and it knows of
// enough of them, at most for electionLimit. The errors are those of Check, and Conflict, with
// every stream that exists, before anything is changed. After any other error some streams are
// there: begin again with an empty store.
func Restore(ctx context.Context, nc *nats.Conn, dir string, replicas int) (Manifest, error) {
	m, err := Check(dir)
	if err != nil {
		return m, err
	}
	if replicas != 0 && replicas != 1 && replicas != 3 && replicas != 5 {
		return m, errcode.Errorf(errcode.Invalid, "replicas: %d: use 1, 3 or 5, or 0 for those of the backup", replicas)
	}
	var exist []string
	for _, s := range m.Streams {
		switch info, err := existing(ctx, nc, s.Name); {
		case err == nil:
			exist = append(exist, s.Name+" with "+english.Plural(info.State.Msgs, "message"))
		case !errors.Is(err, errcode.ErrNotFound):
			return m, err
		}
	}
	if len(exist) > 0 {
		return m, errcode.Errorf(errcode.Conflict, "the server is not empty, so nothing was restored: start it with an empty store and --without-streams, and do not use regroup init; it has %s",
			strings.Join(exist, ", "))
	}
	for _, s := range m.Streams {
		if replicas > 0 {
			s.Config.Replicas = replicas
		}
		if err := restoreStream(ctx, nc, dir, s); err != nil {
			return m, errcode.Errorf(errcode.Of(err), "restore stream %s: %w; start the server with an empty store before you try again", s.Name, err)
		}
	}
	return m, nil
}

// existing asks for a stream until there is an answer: servers are silent while they elect.
func existing(ctx context.Context, nc *nats.Conn, name string) (info server.JSApiStreamInfoResponse, err error) {
	err = elected(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, electionAttempt)
		defer cancel()
		info = server.JSApiStreamInfoResponse{}
		return ask(ctx, nc, apiInfo+name, nil, &info)
	})
	return info, err
}

// elected repeats a request that is refused because servers have just started, or not answered.
func elected(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, electionLimit)
	defer cancel()
	for {
		err := request(ctx)
		refused, ok := errors.AsType[apiError](err)
		if errcode.Of(err) != errcode.Unavailable || ok && !starting(refused) || !wait.Sleep(ctx, electionPause) {
			return err
		}
	}
}

// starting reports whether a server refuses something that it will not refuse once the servers of
// its cluster have found each other.
func starting(refused apiError) bool {
	code := server.ErrorIdentifier(refused.ErrCode)
	return code == server.JSClusterNotAvailErr || code == server.JSClusterNoPeersErrF || code == server.JSClusterNotLeaderErr
}

func restoreStream(ctx context.Context, nc *nats.Conn, dir string, s Stream) error {
	f, err := os.Open(filepath.Join(dir, s.File))
	if err != nil {
		return errcode.Errorf(errcode.Unavailable, "backup: %w", err)
	}
	defer f.Close()
	var begin server.JSApiStreamRestoreResponse
	err = elected(ctx, func(ctx context.Context) error {
		// Servers of a new cluster may hear the request before they know the way back for its
		// answer. By the next one they have forgotten it.
		ctx, cancel := context.WithTimeout(ctx, abandoned)
		defer cancel()
		begin = server.JSApiStreamRestoreResponse{}
		return ask(ctx, nc, apiRestore+s.Name, server.JSApiStreamRestoreRequest{Config: s.Config, State: s.State}, &begin)
	})
	if err != nil {
		return err
	}
	for part := make([]byte, chunk); ; {
		n, err := io.ReadFull(f, part)
		if n > 0 {
			if err := deliver(ctx, nc, begin.DeliverSubject, part[:n], &server.JSApiStreamCreateResponse{}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return errcode.Errorf(errcode.Unavailable, "backup: %w", err)
		}
	}
	var end server.JSApiStreamCreateResponse
	if err := deliver(ctx, nc, begin.DeliverSubject, nil, &end); err != nil {
		return err
	}
	if end.StreamInfo == nil {
		return errcode.Errorf(errcode.Internal, "the server does not say what it has restored")
	}
	if have := end.State; have.LastSeq != s.State.LastSeq {
		return errcode.Errorf(errcode.Internal, "its last sequence is %d, want %d", have.LastSeq, s.State.LastSeq)
	}
	return nil
}

// deliver sends a part to the server that restores. The one to which this process is connected may
// learn later who takes it than that the restoration has begun.
func deliver(ctx context.Context, nc *nats.Conn, subject string, part []byte, answer any) error {
	for end := time.Now().Add(answerLimit); ; {
		err := call(ctx, nc, subject, part, answer)
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(end) || !wait.Sleep(ctx, electionPause) {
			return err
		}
	}
}
