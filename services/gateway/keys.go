package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/gateway/dashboard"
	"github.com/regroup-io/regroup/services/gateway/tokens"
)

// Lifetimes and numbers of what replaces the token in a browser.
const (
	linkLives    = 5 * time.Minute
	sessionLives = 12 * time.Hour
	maxLinks     = 64
	maxSessions  = 1024
	// Of one token: with more, its own oldest ends.
	linksEach    = 16
	sessionsEach = 128
)

// keys are what proves who asks: the gateway's own token, one of the file, or a session of a
// browser that began with a link that was made with one. Links and sessions are kept as digests.
type keys struct {
	token string
	file  *tokens.File
	now   func() time.Time

	mu       sync.Mutex
	links    map[digest]grant
	sessions map[digest]grant
}

type digest [sha256.Size]byte

// grant is whose rights a link or a session has, and until when.
type grant struct {
	who   tokens.Principal
	until time.Time
}

func newKeys(token string, file *tokens.File, now func() time.Time) *keys {
	if token == "" {
		token = secret()
	}
	return &keys{token: token, file: file, now: now, links: map[digest]grant{}, sessions: map[digest]grant{}}
}

// secret returns 256 random bits.
func secret() string {
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// bearer returns whose token was given. It compares in constant time.
func (k *keys) bearer(given string) (tokens.Principal, bool) {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(k.token))
	if subtle.ConstantTimeCompare(a[:], b[:]) == 1 {
		return tokens.Owner, true
	}
	return k.file.Find(given, k.now())
}

// known reports whether a token is still valid.
func (k *keys) known(who tokens.Principal) bool {
	return who == tokens.Owner || k.file.Known(who, k.now())
}

// link returns a code that can be exchanged once for a session of its owner.
func (k *keys) link(who tokens.Principal) (code string, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	code, until = secret(), k.now().Add(linkLives)
	put(k.links, maxLinks, linksEach, code, grant{who, until})
	return code, until
}

// exchange ends a code and returns a new session; false if the code is unknown, used or too old.
func (k *keys) exchange(code string) (session string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := sha256.Sum256([]byte(code))
	l, ok := k.links[d]
	delete(k.links, d)
	if !ok || k.now().After(l.until) {
		return "", false
	}
	return k.begin(l.who), true
}

// login returns a new session for a token.
func (k *keys) login(token string) (session string, ok bool) {
	who, ok := k.bearer(token)
	if !ok {
		return "", false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begin(who), true
}

func (k *keys) begin(who tokens.Principal) string {
	s := secret()
	put(k.sessions, maxSessions, sessionsEach, s, grant{who, k.now().Add(sessionLives)})
	return s
}

// put adds an entry. If one owner has too many, the own one that ends first makes room; if all
// together have, one of the owner with the most does, so that nobody ends what others have.
func put(of map[digest]grant, most, each int, word string, l grant) {
	count := map[tokens.Principal]int{}
	for _, x := range of {
		count[x.who]++
	}
	from := l.who
	if count[l.who] < each {
		for who, n := range count {
			if n > count[from] {
				from = who
			}
		}
	}
	if count[l.who] >= each || len(of) >= most {
		var oldest digest
		for d, x := range of {
			if x.who == from && (oldest == (digest{}) || x.until.Before(of[oldest].until)) {
				oldest = d
			}
		}
		delete(of, oldest)
	}
	of[sha256.Sum256([]byte(word))] = l
}

// session returns whose session it is. It ends with the token that it began with.
func (k *keys) session(given string) (tokens.Principal, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := sha256.Sum256([]byte(given))
	l, ok := k.sessions[d]
	if ok && (k.now().After(l.until) || !k.known(l.who)) {
		delete(k.sessions, d)
		return tokens.Principal{}, false
	}
	return l.who, ok
}

func (k *keys) logout(given string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sessions, sha256.Sum256([]byte(given)))
}

// cookieName has the port, because browsers share cookies between the ports of a host.
func cookieName(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return "regroup_" + port
	}
	return "regroup"
}

// asks returns who makes a request; false if it presents no valid token or session.
func (g *Gateway) asks(r *http.Request) (tokens.Principal, bool) {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return g.keys.bearer(strings.TrimSpace(token))
	}
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return tokens.Principal{}, false
	}
	return g.keys.session(c.Value)
}

// cookie gives a browser a session; an empty one ends it.
func (g *Gateway) cookie(w http.ResponseWriter, r *http.Request, session string) {
	c := &http.Cookie{
		Name: cookieName(r), Value: session, Path: "/", HttpOnly: true, Secure: g.Secure,
		SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLives.Seconds()),
	}
	if session == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// Login is the token.
type Login struct {
	Token string `json:"token"`
}

// Link opens the dashboard once, with the rights of who has made it.
type Link struct {
	Path  string    `json:"path"` // below the address of the gateway
	Until time.Time `json:"until"`
}

// LinkPath returns the path of a new link that opens the dashboard once.
func (g *Gateway) LinkPath() string {
	code, _ := g.keys.link(tokens.Owner)
	return "/login/" + code
}

func (g *Gateway) makeLink(w http.ResponseWriter, r *http.Request) error {
	code, until := g.keys.link(asker(r.Context()))
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

// Asker is who asks.
type Asker struct {
	tokens.Principal
	Source string `json:"source"` // of its commands: who has submitted a job is in the field by
}

func (g *Gateway) whoami(w http.ResponseWriter, r *http.Request) error {
	who := asker(r.Context())
	return answer(w, http.StatusOK, Asker{who, sourceOf(who)})
}

func (g *Gateway) login(w http.ResponseWriter, r *http.Request) error {
	var l Login
	if err := body(r, &l); err != nil {
		return err
	}
	session, ok := g.keys.login(l.Token)
	if !ok {
		return withStatus(http.StatusUnauthorized, errcode.Errorf(errcode.Invalid, "token: it is not that of this gateway"))
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
