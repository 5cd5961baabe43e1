// Package tokens keeps who may ask a gateway, and for what: a file with names, roles and hashes of
// tokens, which gateways read again when it changes.
package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/durable"
)

// Role is what a token permits.
type Role string

// Roles. Each may do what those before it may.
const (
	Viewer    Role = "viewer"    // reads
	Submitter Role = "submitter" // submits jobs, and changes those that it has submitted
	Operator  Role = "operator"  // everything
)

// Roles returns all roles, the weakest first.
func Roles() []Role { return []Role{Viewer, Submitter, Operator} }

// Includes reports whether the role may do what another one may.
func (r Role) Includes(other Role) bool {
	return slices.Index(Roles(), r) >= slices.Index(Roles(), other) && slices.Contains(Roles(), r)
}

// Principal is who asks.
type Principal struct {
	Name string `json:"name"` // part of the source of its commands
	Role Role   `json:"role"`
	// User is as whom all its jobs run, like spec.Processes.User; empty = as they say.
	User string `json:"user,omitempty"`
}

// Owner is who has the gateway's own token, which is in no file.
var Owner = Principal{Name: "gateway", Role: Operator}

// Token is one entry of the file.
type Token struct {
	Principal
	Hash    string    `json:"sha256"` // of the token, in hex
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires,omitzero"` // zero = never
}

// Expired reports whether a token counts no more.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// File is a file of tokens. The zero value of a path is a file without any.
type File struct {
	path string

	mu     sync.Mutex
	read   durable.Version // that was read
	tokens []Token
}

// Open returns the file at a path, which need not exist yet.
func Open(path string) *File { return &File{path: path} }

// Path returns where the file is.
func (f *File) Path() string { return f.path }

// All returns every token, by name.
func (f *File) All() ([]Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		return nil, err
	}
	return slices.Clone(f.tokens), nil
}

// Find returns who a token belongs to; false if it is unknown or has expired. A file that cannot be
// read admits nobody.
func (f *File) Find(token string, now time.Time) (Principal, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" || f.load() != nil {
		return Principal{}, false
	}
	h := hash(token) // which is compared, so that the time tells nothing of the token
	i := slices.IndexFunc(f.tokens, func(t Token) bool { return t.Hash == h && !t.Expired(now) })
	if i < 0 {
		return Principal{}, false
	}
	return f.tokens[i].Principal, true
}

// Known reports whether a principal still has a token, so that what was begun with it may go on.
func (f *File) Known(p Principal, now time.Time) bool {
	all, err := f.All()
	return err == nil && slices.ContainsFunc(all, func(t Token) bool { return t.Principal == p && !t.Expired(now) })
}

// Issue adds a token and returns it; it is kept nowhere else. Conflict if the name has one.
func (f *File) Issue(p Principal, now time.Time, lives time.Duration) (string, error) {
	if err := ident.NodeID(p.Name).Check(); err != nil {
		return "", errcode.Errorf(errcode.Invalid, "name %q: use a-z, 0-9 and '-', at most 63 of them", p.Name)
	}
	if p.Name == Owner.Name {
		return "", errcode.Errorf(errcode.Invalid, "name %q: it is that of the gateway's own token", p.Name)
	}
	if !slices.Contains(Roles(), p.Role) {
		return "", errcode.Errorf(errcode.Invalid, "role %q: use viewer, submitter or operator", p.Role)
	}
	if lives < 0 {
		return "", errcode.Errorf(errcode.Invalid, "expires %s: give a time that has not passed", lives)
	}
	b := make([]byte, 32)
	rand.Read(b) //nolint:errcheck // it never fails
	token := base64.RawURLEncoding.EncodeToString(b)
	return token, f.change(func(all []Token) ([]Token, error) {
		if slices.ContainsFunc(all, func(t Token) bool { return t.Name == p.Name && !t.Expired(now) }) {
			return nil, errcode.Errorf(errcode.Conflict, "%s has a token: revoke it first", p.Name)
		}
		all = slices.DeleteFunc(all, func(t Token) bool { return t.Name == p.Name })
		t := Token{Principal: p, Hash: hash(token), Issued: now.UTC()}
		if lives > 0 {
			t.Expires = now.UTC().Add(lives)
		}
		return append(all, t), nil
	})
}

// Revoke removes the token of a name; NotFound if it has none.
func (f *File) Revoke(name string) error {
	return f.change(func(all []Token) ([]Token, error) {
		rest := slices.DeleteFunc(slices.Clone(all), func(t Token) bool { return t.Name == name })
		if len(rest) == len(all) {
			return nil, errcode.Errorf(errcode.NotFound, "%s has no token", name)
		}
		return rest, nil
	})
}

// load reads the file if it has changed.
func (f *File) load() error {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.read, f.tokens = durable.Version{}, nil
		return nil
	case err != nil:
		return errcode.Errorf(errcode.Invalid, "tokens: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		return errcode.Errorf(errcode.Invalid, "tokens: %s can be read or changed by others: chmod 600 it", f.path)
	}
	now := durable.VersionOf(f.path)
	if f.read.Same(now) {
		return nil
	}
	text, err := os.ReadFile(f.path)
	var content struct {
		Tokens []Token `json:"tokens"`
	}
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	if err != nil {
		return errcode.Errorf(errcode.Invalid, "tokens: %s: %w", f.path, err)
	}
	slices.SortFunc(content.Tokens, func(a, b Token) int { return strings.Compare(a.Name, b.Name) })
	f.read, f.tokens = now, content.Tokens
	return nil
}

// change writes the file anew.
func (f *File) change(fn func([]Token) ([]Token, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		return err
	}
	all, err := fn(slices.Clone(f.tokens))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{"tokens": all}, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(f.path), 0o700)
	}
	if err == nil {
		err = durable.WriteFileForFolder(f.path, append(text, '\n'))
	}
	if err != nil {
		return errcode.Errorf(errcode.Invalid, "tokens: %w", err)
	}
	f.read = durable.Version{}
	return f.load()
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
