// Package refusal tells what a NATS server has refused: a user, or messages of a user to a subject.
package refusal

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// OfUser reports whether an attempt to connect has failed for who made it.
func OfUser(err error) bool {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) {
		return true
	}
	// What the server says to the first message of a connection is an error of no type.
	return strings.Contains(strings.ToLower(err.Error()), "authorization violation")
}

// Subjects records the subjects for which the server recently refused permission to publish. The
// zero value has none.
type Subjects struct {
	mu sync.Mutex
	at map[string]time.Time
}

// most limits their number; one is enough to detect a wrong permission.
const most = 64

// Note takes what the server says about a message that it does not permit.
func (r *Subjects) Note(sentence string) {
	if !strings.Contains(strings.ToLower(sentence), "publish") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	of := subject(sentence)
	if _, known := r.at[of]; known || len(r.at) < most {
		r.at[of] = time.Now()
	}
}

// Since reports whether a publish to subject was refused after t.
func (r *Subjects) Since(subject string, t time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[subject]
	return ok && !at.Before(t)
}

// Forget makes the next request to each subject try again: the user may have got new permissions.
func (r *Subjects) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.at)
}

// subject extracts the subject from the server's message: Permissions Violation for Publish to
// "a.b".
func subject(sentence string) string {
	_, rest, _ := strings.Cut(sentence, `"`)
	of, _, _ := strings.Cut(rest, `"`)
	return of
}
