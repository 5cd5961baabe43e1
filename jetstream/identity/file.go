package identity

import (
	"bytes"
	"os"
	"sync"

	"github.com/nats-io/jwt/v2"
)

// File has credentials that may be replaced while they are used. Each connection is made with what
// it has then: claims and signature are of one content.
type File struct {
	Path string

	mu      sync.Mutex
	offered []byte // to a broker, at the last attempt to connect
	refused []byte // that were tried, and are not usable
}

// Claims returns the signed claims in the file.
func (f *File) Claims() (string, error) {
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return "", err
	}
	claims, err := jwt.ParseDecoratedJWT(text)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offered = text
	return claims, nil
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
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, false // it is being replaced
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes.Equal(text, f.offered) {
		return nil, false
	}
	return text, bytes.Equal(text, f.refused)
}

// Refuse records that credentials are not usable.
func (f *File) Refuse(creds []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = creds
}
