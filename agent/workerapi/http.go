package workerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

const maxBody = 1 << 20

// handler returns the handler for a socket of the agent's own user, or for one of another user, who
// may not take the node away from others.
func (s *Server) handler(own bool) http.Handler {
	calls := s.opt.Calls
	mux := http.NewServeMux()
	for path, h := range map[string]struct {
		method string
		serve  serve
	}{
		workerprotocol.PathJoin:        {http.MethodPost, s.join},
		workerprotocol.PathChanges:     {http.MethodGet, s.changes},
		workerprotocol.PathPeers:       {http.MethodGet, s.peers},
		workerprotocol.PathReport:      {http.MethodPost, accept(http.StatusNoContent, calls.Report)},
		workerprotocol.PathCommit:      {http.MethodPost, accept(http.StatusNoContent, calls.Commit)},
		workerprotocol.PathDone:        {http.MethodPost, accept(http.StatusNoContent, calls.Done)},
		workerprotocol.PathSpan:        {http.MethodPost, accept(http.StatusNoContent, calls.Span)},
		workerprotocol.PathHash:        {http.MethodPost, accept(http.StatusNoContent, calls.Hash)},
		workerprotocol.PathCheckpoint:  {http.MethodPost, accept(http.StatusNoContent, calls.Checkpoint)},
		workerprotocol.PathPreempt:     {http.MethodPost, accept(http.StatusAccepted, calls.Preempt)},
		workerprotocol.PathEnvironment: {http.MethodPost, accept(http.StatusNoContent, calls.Environment)},
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != h.method {
				w.Header().Set("Allow", h.method)
				refuse(w, refusal(http.StatusMethodNotAllowed, "invalid", "%s takes %s, not %s", path, h.method, r.Method))
				return
			}
			var worker string
			var b *mailbox
			var err error
			switch {
			case path != workerprotocol.PathPreempt && path != workerprotocol.PathEnvironment:
				worker, b, err = s.who(r)
			case !own:
				err = refusal(http.StatusForbidden, "not_allowed", "%s is for the agent's own user", path)
			default: // any process that may open the socket: it may also stop its workers, or submit jobs here
			}
			if err == nil {
				err = h.serve(w, r, worker, b)
			}
			if err != nil {
				refuse(w, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, refusal(http.StatusNotFound, "not_found", "there is no %s: the worker API has /v1/join, changes, peers, report, commit, done, span, hash, checkpoint, preempt and environment", r.URL.Path))
	})
	return mux
}

func refusal(status int, code, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error texts go to the worker's log, so each says what to do.
func refuse(w http.ResponseWriter, err error) {
	var r *Refusal
	if !errors.As(err, &r) {
		r = refusal(http.StatusInternalServerError, "internal", "%v", err)
	}
	_ = reply(w, r.Status, workerprotocol.Error{Code: r.Code, Message: r.Message}) // a caller that has hung up needs no answer
}

func reply(w http.ResponseWriter, status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(append(b, '\n'))
	return err
}

func (s *Server) who(r *http.Request) (string, *mailbox, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", nil, refusal(http.StatusUnauthorized, "invalid", "the header Authorization: Bearer $REGROUP_TOKEN is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	worker, ok := s.tokens[token]
	if !ok {
		return "", nil, refusal(http.StatusForbidden, "fenced", "the token is of no worker that runs here: it belongs to an ended process or to another node")
	}
	return worker, s.mailboxes[worker], nil
}

// read decodes a body strictly: a misspelt field must not be ignored silently.
func read[T any](w http.ResponseWriter, r *http.Request) (T, error) {
	var v T
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(&v)
	if err == nil && !errors.Is(d.Decode(&struct{}{}), io.EOF) {
		err = errors.New("there is something after the JSON object")
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return v, refusal(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", maxBody)
	case err != nil:
		return v, refusal(http.StatusBadRequest, "invalid", "body: %v", err)
	}
	if c, ok := any(v).(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			return v, refusal(http.StatusBadRequest, "invalid", "body: %v", err)
		}
	}
	return v, nil
}

// serve answers a call of a worker, whose name is empty for a call of another process.
type serve func(w http.ResponseWriter, r *http.Request, worker string, b *mailbox) error

// accept passes the body of a call on, and answers with a status unless it is refused. With
// StatusAccepted there need not be a body.
func accept[T any](status int, to func(worker string, body T) error) serve {
	return func(w http.ResponseWriter, r *http.Request, worker string, _ *mailbox) (err error) {
		var v T
		if r.ContentLength != 0 || status != http.StatusAccepted {
			if v, err = read[T](w, r); err != nil {
				return err
			}
		}
		if err := to(worker, v); err != nil {
			return err
		}
		w.WriteHeader(status)
		return nil
	}
}

func (s *Server) join(w http.ResponseWriter, r *http.Request, worker string, b *mailbox) error {
	req, err := read[workerprotocol.JoinRequest](w, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.opt.PollFor)
	defer cancel()
	answer := b.wait()
	defer b.leave(answer)
	s.opt.Calls.Join(worker, req)
	select {
	case a := <-answer:
		if a.refusal != nil {
			return a.refusal
		}
		return reply(w, http.StatusOK, a.assignment)
	case <-ctx.Done():
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

func (s *Server) changes(w http.ResponseWriter, r *http.Request, _ string, b *mailbox) error {
	g, err := number(r, "generation")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.opt.PollFor)
	defer cancel()
	c, ok := b.next(ctx, g)
	if !ok {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.Context().Err() != nil || reply(w, http.StatusOK, c) != nil {
		b.putBack(c) // it was not delivered
	}
	return nil
}

func (s *Server) peers(w http.ResponseWriter, r *http.Request, worker string, _ *mailbox) error {
	g, err := number(r, "generation")
	if err != nil {
		return err
	}
	rank, err := number(r, "rank")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.opt.PollFor)
	defer cancel()
	p, err := s.opt.Calls.Peer(ctx, worker, g, int(min(rank, 1<<30)))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, p)
}

func number(r *http.Request, name string) (uint64, error) {
	v := r.URL.Query().Get(name)
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, refusal(http.StatusBadRequest, "invalid", "query parameter %s=%q is not a number", name, v)
	}
	return n, nil
}
