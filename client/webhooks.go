package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/regroup-io/regroup/events/ident"
)

// Webhook is where a gateway sends facts, and how that goes (docs/http.md).
type Webhook struct {
	ID        string      `json:"id"`
	URL       string      `json:"url"`
	Types     []string    `json:"types"`
	Job       ident.JobID `json:"job,omitempty"`
	Created   time.Time   `json:"created"`
	Form      string      `json:"form,omitempty"` // cloudevent, slack or teams; empty = cloudevent
	Handshake string      `json:"handshake"`      // optional, required or off
	Rate      int         `json:"rate,omitempty"`
	Target    struct {
		Granted   bool      `json:"granted"` // it has agreed to get facts
		Rate      int       `json:"rate,omitempty"`
		Reason    string    `json:"reason,omitempty"` // why it has not
		Asked     time.Time `json:"asked,omitzero"`
		NotBefore time.Time `json:"not_before,omitzero"`
		Gone      time.Time `json:"gone,omitzero"`
	} `json:"target"`
	Delivered uint64    `json:"delivered"` // facts
	Failed    uint64    `json:"failed"`    // attempts
	LastError string    `json:"last_error,omitempty"`
	LastAt    time.Time `json:"last_at,omitzero"`
	Forgotten uint64    `json:"forgotten,omitempty"`
	Parked    []struct {
		Sequence uint64    `json:"sequence"`
		Event    string    `json:"event"`
		Error    string    `json:"error"`
		At       time.Time `json:"at"`
	} `json:"parked"`

	Secret string `json:"secret,omitempty"` // in the answer to AddWebhook alone
}

// NewWebhook is a request for a webhook. Zero fields are left to the gateway.
type NewWebhook struct {
	URL       string      `json:"url"`
	Types     []string    `json:"types,omitempty"`
	Job       ident.JobID `json:"job,omitempty"`
	Secret    string      `json:"secret,omitempty"`
	Form      string      `json:"form,omitempty"`
	Token     string      `json:"token,omitempty"`
	Handshake string      `json:"handshake,omitempty"`
	Rate      int         `json:"rate,omitempty"`
}

const webhooksPath = "/api/v1/webhooks"

// Webhooks lists the webhooks of the gateway, the oldest first.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	var list struct {
		Webhooks []Webhook `json:"webhooks"`
	}
	err := c.Get(ctx, webhooksPath, &list)
	return list.Webhooks, err
}

// AddWebhook makes a webhook. It is not repeated: each request makes another.
func (c *Client) AddWebhook(ctx context.Context, n NewWebhook) (w Webhook, err error) {
	r, err := asJSON(http.MethodPost, webhooksPath, n)
	if err != nil {
		return w, err
	}
	return w, c.once(ctx, r, &w)
}

// RemoveWebhook ends a webhook.
func (c *Client) RemoveWebhook(ctx context.Context, id string) error {
	return c.once(ctx, request{method: http.MethodDelete, path: webhooksPath + "/" + url.PathEscape(id)}, nil)
}

// TestWebhook sends an event that is no fact, once. The error is what its target says.
func (c *Client) TestWebhook(ctx context.Context, id string) error {
	return c.once(ctx, request{method: http.MethodPost, path: webhooksPath + "/" + url.PathEscape(id) + "/test"}, nil)
}

// ReplayWebhook sends the facts that were set aside once more, and returns how many are left.
func (c *Client) ReplayWebhook(ctx context.Context, id string) (left int, err error) {
	var replayed struct {
		Left int `json:"left"`
	}
	err = c.once(ctx, request{method: http.MethodPost, path: webhooksPath + "/" + url.PathEscape(id) + "/replay"}, &replayed)
	return replayed.Left, err
}
