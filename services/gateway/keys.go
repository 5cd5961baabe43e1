package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Lifetimes and numbers of what replaces the token in a browser.
const (
	linkLives    = 5 * time.Minute
	sessionLives = 12 * time.Hour
	maxLinks     = 64
	maxSessions  = 1024
)

// keys are what proves that a request may be answered: the token, or a session of a browser that
// began with a link that was made with it. Links and sessions are kept as digests.
type keys struct {
	token string
	now   func() time.Time

	mu       sync.Mutex
	links    map[digest]time.Time // when it ends
	sessions map[digest]time.Time
}

type digest [sha256.Size]byte

func newKeys(token string, now func() time.Time) *keys {
	if token == "" {
		token = secret()
	}
	return &keys{token: token, now: now, links: map[digest]time.Time{}, sessions: map[digest]time.Time{}}
}

// secret returns 256 random bits.
func secret() string {
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// isToken compares in constant time.
func (k *keys) isToken(given string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(k.token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// link returns a code that can be exchanged for a session once.
func (k *keys) link() (code string, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	code, until = secret(), k.now().Add(linkLives)
	k.put(k.links, maxLinks, code, until)
	return code, until
}

// exchange ends a code and returns a new session; false if the code is unknown, used or too old.
func (k *keys) exchange(code string) (session string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := sha256.Sum256([]byte(code))
	until, ok := k.links[d]
	delete(k.links, d)
	if !ok || k.now().After(until) {
		return "", false
	}
	return k.begin(), true
}

// login returns a new session for the token.
func (k *keys) login(token string) (session string, ok bool) {
	if !k.isToken(token) {
		return "", false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begin(), true
}

func (k *keys) begin() string {
	s := secret()
	k.put(k.sessions, maxSessions, s, k.now().Add(sessionLives))
	return s
}

// put adds an entry; if there are too many, the one that ends first makes room.
func (k *keys) put(of map[digest]time.Time, most int, word string, until time.Time) {
	for len(of) >= most {
		var oldest digest
		for d, at := range of {
			if oldest == (digest{}) || at.Before(of[oldest]) {
				oldest = d
			}
		}
		delete(of, oldest)
	}
	of[sha256.Sum256([]byte(word))] = until
}

func (k *keys) isSession(given string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := sha256.Sum256([]byte(given))
	until, ok := k.sessions[d]
	if ok && k.now().After(until) {
		delete(k.sessions, d)
		return false
	}
	return ok
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

// allowed reports whether a request presents the token or a session.
func (g *Gateway) allowed(r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return g.keys.isToken(strings.TrimSpace(token))
	}
	c, err := r.Cookie(cookieName(r))
	return err == nil && g.keys.isSession(c.Value)
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
