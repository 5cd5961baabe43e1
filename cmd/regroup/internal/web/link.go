package web

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/gateway"
)

// Link asks a running gateway for an address that opens its dashboard once.
func (r Record) Link(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/api/v1/links", http.NoBody)
	if err != nil {
		return "", events.Errorf(events.Invalid, "--url %q: %w", r.URL, err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", events.Errorf(events.Unavailable, "%s does not answer: does it run? Start one with regroup up --dashboard or serve gateway (%v)", r.URL, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		return "", events.Errorf(events.Unavailable, "%s answers %s: is the token right (REGROUP_GATEWAY_TOKEN)?", r.URL, res.Status)
	}
	var link gateway.Link
	if err := json.NewDecoder(res.Body).Decode(&link); err != nil || link.Path == "" {
		return "", events.Errorf(events.Unavailable, "%s answers something else than a link: is it a gateway?", r.URL)
	}
	return r.URL + link.Path, nil
}
