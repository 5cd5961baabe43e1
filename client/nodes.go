package client

import (
	"context"
	"net/http"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// Nodes lists the nodes, by name.
func (c *Client) Nodes(ctx context.Context) ([]events.NodeView, error) {
	list, err := ask[struct {
		Nodes []events.NodeView `json:"nodes"`
	}](ctx, c, http.MethodGet, "/api/v1/nodes", nil)
	return list.Nodes, err
}

// Drain gives a node no more work and moves its work away; Undrain ends that.
func (c *Client) Drain(ctx context.Context, node ident.NodeID, reason string) (events.NodeView, error) {
	return c.drain(ctx, node, map[string]any{"reason": reason})
}

// Undrain gives a node work again.
func (c *Client) Undrain(ctx context.Context, node ident.NodeID) (events.NodeView, error) {
	return c.drain(ctx, node, map[string]any{"undo": true})
}

func (c *Client) drain(ctx context.Context, node ident.NodeID, body any) (v events.NodeView, err error) {
	if err := node.Check(); err != nil {
		return v, err
	}
	return ask[events.NodeView](ctx, c, http.MethodPost, "/api/v1/nodes/"+string(node)+"/drain", body)
}
