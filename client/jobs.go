package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Submit submits a job and returns its id. A request whose answer was lost is repeated and still
// submits one job. The error has each thing that is wrong with the specification.
func (c *Client) Submit(ctx context.Context, job spec.Job) (ident.JobID, error) {
	r, err := asJSON(http.MethodPost, "/api/v1/jobs", job)
	if err != nil {
		return "", err
	}
	return c.submit(ctx, r)
}

// SubmitFile submits the text of a job file in YAML or JSON, as regroup submit -f does.
func (c *Client) SubmitFile(ctx context.Context, text []byte) (ident.JobID, error) {
	return c.submit(ctx, request{method: http.MethodPost, path: "/api/v1/jobs", body: text, header: map[string]string{"Content-Type": "application/yaml"}})
}

func (c *Client) submit(ctx context.Context, r request) (ident.JobID, error) {
	r.header["Idempotency-Key"] = rand.Text()
	var done struct {
		Job ident.JobID `json:"job"`
	}
	if err := c.do(ctx, r, &done); err != nil {
		return "", err
	}
	return done.Job, nil
}

// Planned is what would happen to a job that were submitted now.
type Planned struct {
	Text string   `json:"plan"` // in sentences, as regroup plan prints them
	Fits bool     `json:"fits"` // it would start at once
	Free int      `json:"free"` // slots that are free now
	Spec spec.Job `json:"spec"` // with every default
	// Forecast is what regroup plan -o json prints: where it would start, or what it would wait
	// for; empty = its nodes come by themselves.
	Forecast json.RawMessage `json:"forecast"`
}

// Plan says whether a job would start now, and submits nothing. The error has each thing that is
// wrong with the specification.
func (c *Client) Plan(ctx context.Context, job spec.Job) (p Planned, err error) {
	r, err := asJSON(http.MethodPost, "/api/v1/jobs?dryRun=1", job)
	if err != nil {
		return p, err
	}
	return p, c.do(ctx, r, &p)
}

// Selection says which jobs are listed.
type Selection struct {
	State events.JobState // empty = any
	Text  string          // a part of the id or of the command; empty = any
	Limit int             // the newest so many; 0 = all
}

// Jobs lists jobs, the newest first.
func (c *Client) Jobs(ctx context.Context, s Selection) ([]view.Job, error) {
	q := url.Values{}
	if s.State != "" {
		q.Set("state", string(s.State))
	}
	if s.Text != "" {
		q.Set("q", s.Text)
	}
	if s.Limit > 0 {
		q.Set("limit", strconv.Itoa(s.Limit))
	}
	var list struct {
		Jobs []view.Job `json:"jobs"`
	}
	err := c.do(ctx, request{method: http.MethodGet, path: "/api/v1/jobs", query: q}, &list)
	return list.Jobs, err
}

// Job returns one job; NotFound if there is none with this id.
func (c *Client) Job(ctx context.Context, id ident.JobID) (view.Job, error) {
	return c.change(ctx, http.MethodGet, id, "", nil)
}

// Scale changes the wanted number of workers.
func (c *Client) Scale(ctx context.Context, id ident.JobID, workers spec.Workers) (view.Job, error) {
	return c.change(ctx, http.MethodPatch, id, "", map[string]any{"workers": workers})
}

// Stop ends a job with the grace of its specification, and without one if now is set. It returns
// when the job is stopping; Wait waits for its end.
func (c *Client) Stop(ctx context.Context, id ident.JobID, reason string, now bool) (view.Job, error) {
	return c.change(ctx, http.MethodPost, id, "/stop", map[string]any{"reason": reason, "now": now})
}

func (c *Client) change(ctx context.Context, method string, id ident.JobID, more string, body any) (v view.Job, err error) {
	path, err := jobPath(id, more)
	if err != nil {
		return v, err
	}
	return ask[view.Job](ctx, c, method, path, body)
}

// Remove removes the record of an ended job; Conflict if it has not ended.
func (c *Client) Remove(ctx context.Context, id ident.JobID) error {
	path, err := jobPath(id, "")
	if err != nil {
		return err
	}
	return c.do(ctx, request{method: http.MethodDelete, path: path}, nil)
}

// Wait returns a job when it has ended, in whichever way: State and Reason say how. It waits until
// ctx ends, also while gateways come and go.
func (c *Client) Wait(ctx context.Context, id ident.JobID) (view.Job, error) {
	v, err := c.Job(ctx, id)
	if err != nil || v.State.Terminal() {
		return v, err
	}
	for e, err := range c.Events(ctx, EventsOptions{Job: id, Type: "job.*"}) {
		if err != nil {
			return v, err
		}
		if _, ended := e.Body.(events.JobEndFact); !ended {
			continue
		}
		// The fact may come before the document.
		back := wait.Backoff{First: 10 * time.Millisecond, Max: time.Second}
		for !v.State.Terminal() {
			if v, err = c.Job(ctx, id); err != nil {
				return v, err
			}
			if !v.State.Terminal() && !back.Sleep(ctx) {
				break
			}
		}
		break
	}
	if !v.State.Terminal() {
		return v, errcode.Errorf(errcode.Cancelled, "the job has not ended yet: %w", context.Cause(ctx))
	}
	return v, nil
}
