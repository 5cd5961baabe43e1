package gateway

import (
	"net/http"

	"github.com/regroup-io/regroup/services/gateway/webhooks"
)

// HookList is a list of webhooks.
type HookList struct {
	Webhooks []webhooks.Hook `json:"webhooks"`
}

// Replayed answers the replay of what a webhook has not taken.
type Replayed struct {
	Left int `json:"left"` // facts that are still set aside
}

func (g *Gateway) listHooks(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, http.StatusOK, HookList{g.hooks.All()})
}

func (g *Gateway) addHook(w http.ResponseWriter, r *http.Request) error {
	var n webhooks.New
	if err := body(r, &n); err != nil {
		return err
	}
	created, err := g.hooks.Add(r.Context(), n)
	if err != nil {
		return withBadGateway(refusedAs(http.StatusUnprocessableEntity, err))
	}
	w.Header().Set("Location", "/api/v1/webhooks/"+created.ID)
	return answer(w, http.StatusCreated, created)
}

func (g *Gateway) removeHook(w http.ResponseWriter, r *http.Request) error {
	if err := g.hooks.Remove(r.PathValue("webhook")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (g *Gateway) testHook(w http.ResponseWriter, r *http.Request) error {
	if err := g.hooks.Test(r.Context(), r.PathValue("webhook")); err != nil {
		return withBadGateway(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (g *Gateway) replayHook(w http.ResponseWriter, r *http.Request) error {
	left, err := g.hooks.Replay(r.Context(), r.PathValue("webhook"))
	if err != nil {
		return withBadGateway(err)
	}
	return answer(w, http.StatusOK, Replayed{left})
}

// withBadGateway is the refusal of a webhook's target.
func withBadGateway(err error) error {
	if webhooks.OfTarget(err) {
		return withStatus(http.StatusBadGateway, err)
	}
	return err
}
