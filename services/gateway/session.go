package gateway

import (
	"fmt"
	"net/http"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/gateway/dashboard"
)

// Login is the token.
type Login struct {
	Token string `json:"token"`
}

// Link opens the dashboard once.
type Link struct {
	Path  string    `json:"path"` // below the address of the gateway
	Until time.Time `json:"until"`
}

// LinkPath returns the path of a new link that opens the dashboard once.
func (g *Gateway) LinkPath() string {
	code, _ := g.keys.link()
	return "/login/" + code
}

func (g *Gateway) makeLink(w http.ResponseWriter, _ *http.Request) error {
	code, until := g.keys.link()
	return answer(w, http.StatusCreated, Link{Path: "/login/" + code, Until: until})
}

// openLink begins a session. The code is gone afterwards, also from the address of the page.
func (g *Gateway) openLink(w http.ResponseWriter, r *http.Request) {
	session, ok := g.keys.exchange(r.PathValue("code"))
	if !ok {
		dashboard.Headers(w)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>Regroup</title><link rel="stylesheet" href="/style.css"><main class="alone"><h1>This link was used, or is too old</h1><p>A link opens the dashboard once, within five minutes. Make another one: <code>regroup dashboard</code></p></main></html>`)
		return
	}
	g.cookie(w, r, session)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (g *Gateway) login(w http.ResponseWriter, r *http.Request) error {
	var l Login
	if err := body(r, &l); err != nil {
		return err
	}
	session, ok := g.keys.login(l.Token)
	if !ok {
		return withStatus(http.StatusUnauthorized, events.Errorf(events.Invalid, "token: it is not that of this gateway"))
	}
	g.cookie(w, r, session)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (g *Gateway) logout(w http.ResponseWriter, r *http.Request) error {
	if c, err := r.Cookie(cookieName(r)); err == nil {
		g.keys.logout(c.Value)
	}
	g.cookie(w, r, "")
	w.WriteHeader(http.StatusNoContent)
	return nil
}
