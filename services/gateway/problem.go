package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// Problem is the body of an answer that is an error (RFC 9457). Code is that of the command line;
// Errors has each thing that is wrong, with the path of its field or attribute.
type Problem struct {
	Type   string            `json:"type"`
	Title  string            `json:"title"`
	Status int               `json:"status"`
	Detail string            `json:"detail"`
	Code   errcode.Code      `json:"code"`
	Errors []spec.FieldError `json:"errors,omitempty"`
}

// statusError is an error with an HTTP status of its own.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// withStatus returns err with a status; nil stays nil.
func withStatus(status int, err error) error {
	if err == nil {
		return nil
	}
	return statusError{status, err}
}

// refusedAs gives a refusal by a service its status.
func refusedAs(status int, err error) error {
	if errcode.Of(err) == errcode.Invalid {
		return withStatus(status, err)
	}
	return err
}

// statusOf maps the codes of errors.
func statusOf(err error) int {
	var s statusError
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &s):
		return s.status
	case errors.As(err, &tooLong):
		return http.StatusRequestEntityTooLarge
	}
	switch errcode.Of(err) {
	case errcode.Invalid:
		return http.StatusBadRequest
	case errcode.NotFound:
		return http.StatusNotFound
	case errcode.Conflict, errcode.Fenced:
		return http.StatusConflict
	case errcode.Exhausted:
		return http.StatusTooManyRequests
	case errcode.TooLarge:
		return http.StatusRequestEntityTooLarge
	case errcode.Unavailable, errcode.Cancelled:
		return http.StatusServiceUnavailable
	case errcode.Newer:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, err error) {
	p := Problem{Type: "about:blank", Status: statusOf(err), Detail: err.Error(), Code: errcode.Of(err)}
	p.Title = http.StatusText(p.Status)
	if p.Status == http.StatusRequestEntityTooLarge {
		p.Code = errcode.TooLarge
	}
	var fields *errcode.ValidationError
	if errors.As(err, &fields) {
		p.Errors = errcode.BoundedFieldErrors(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = encode(w, p) // the client has gone
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	if err := encode(&b, v); err != nil {
		return errcode.Errorf(errcode.Internal, "encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client has gone
	return nil
}

func encode(w interface{ Write([]byte) (int, error) }, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// wrong is a refusal of one field or parameter.
func wrong(path, message string) error {
	return errcode.Refuse([]spec.FieldError{{Path: path, Message: message}})
}
