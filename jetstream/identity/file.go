package identity

import (
	"bytes"
	"os"
	"sync"

	"github.com/nats-io/jwt/v2"

	"github.com/regroup-io/regroup/internal/durable"
)

// File has credentials that may be replaced while they are used. Each connection is made with what
// it has then: claims and signature are of one content.
//
// Credentials that are not usable cost no connection: those with which the last one was made are
// kept.
type File struct {
	Path string

	mu         sync.Mutex
	offered    []byte          // to a broker, at the last attempt to connect
	same       durable.Version // of the file when it had what was offered
	used       []byte          // by the last connection; nil = there was none
	refused    []byte          // that were tried, and are not usable
	preferLast bool            // those of the last connection were offered last
}

// Claims returns the signed claims to connect with: those in the file. If a broker has refused
// these, they are offered in turn with those of the last connection, which may have expired
// meanwhile.
func (f *File) Claims() (string, error) {
	text, err := os.ReadFile(f.Path)
	var claims string
	if err == nil {
		claims, err = jwt.ParseDecoratedJWT(text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := f.used != nil && (err != nil || f.otherUser(text))
	if !keep && f.used != nil && bytes.Equal(text, f.refused) {
		f.preferLast = !f.preferLast
		keep = f.preferLast
	}
	if keep {
		text = f.used
		claims, err = jwt.ParseDecoratedJWT(text)
	}
	if err != nil {
		return "", err
	}
	f.offered, f.same = text, durable.Version{}
	return claims, nil
}

// OtherUser reports whether credentials are not of the user of the last connection: their replies
// are elsewhere.
func (f *File) OtherUser(creds []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.otherUser(creds)
}

func (f *File) otherUser(creds []byte) bool {
	return f.used != nil && InboxPrefix(creds) != InboxPrefix(f.used)
}

// Admitted records that a broker has admitted what it was shown last.
func (f *File) Admitted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = f.offered
	if bytes.Equal(f.used, f.refused) {
		f.refused = nil
	}
}

// Sign signs what a broker asks for, with the key to the claims that it was shown.
func (f *File) Sign(nonce []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Sign(f.offered, nonce)
}

// Sign signs with the key in credentials.
func Sign(creds, nonce []byte) ([]byte, error) {
	pair, err := jwt.ParseDecoratedUserNKey(creds)
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	return pair.Sign(nonce)
}

// Changed returns what the file has if that is other than what a broker was shown last, and whether
// it is known not to be usable.
func (f *File) Changed() (creds []byte, refused bool) {
	f.mu.Lock()
	same := f.same
	f.mu.Unlock() // the file may be on a disk that hangs
	now := durable.VersionOf(f.Path)
	if same.Same(now) {
		return nil, false
	}
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, false // it is being replaced
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Equal(text, f.offered) {
		f.same = now
		return nil, false
	}
	return text, bytes.Equal(text, f.refused)
}

// Refuse records that credentials are not usable; nil = those of before may be.
func (f *File) Refuse(creds []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = creds
}

// Deaf reports whether the credentials that a broker was shown last forbid to subscribe to a
// subject. It may be called on nil, as Forbids.
func (f *File) Deaf(subject string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return Deaf(f.offered, subject)
}

// Forbids reports whether the credentials that a broker was shown last forbid to publish to a
// subject. It may be called on nil: then nothing is known.
func (f *File) Forbids(subject string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return Forbids(f.offered, subject)
}
