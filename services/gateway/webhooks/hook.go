// Package webhooks sends facts to the addresses of others. Each hook gets the facts that it wants
// in their order, each at least once: signed, again after a failure, and set aside when that does
// not help.
package webhooks

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Bounds of what is kept.
const (
	maxHooks  = 64
	maxTypes  = 32
	maxRate   = 1_000_000 // requests per minute
	maxParked = 1000      // of a hook; the oldest are forgotten first, and counted
)

// Hook is where facts are sent, and how that goes.
type Hook struct {
	ID      string      `json:"id"`
	URL     string      `json:"url"`           // for the form of a chat without its secret part
	Types   []string    `json:"types"`         // patterns as worker.exited or incident.*; empty = all
	Job     ident.JobID `json:"job,omitempty"` // only facts about this job
	Created time.Time   `json:"created"`
	Form    Form        `json:"form,omitempty"` // empty = cloudevent

	Handshake Handshake `json:"handshake"`
	Rate      int       `json:"rate,omitempty"` // requests per minute, asked for and kept; 0 = as many as there are facts
	Target    Target    `json:"target"`         // what the target answers

	Position  uint64    `json:"position"`  // facts up to this one were delivered, set aside or not wanted
	Delivered uint64    `json:"delivered"` // facts
	Failed    uint64    `json:"failed"`    // attempts
	LastError string    `json:"last_error,omitempty"`
	LastAt    time.Time `json:"last_at,omitzero"`    // of the last attempt
	Forgotten uint64    `json:"forgotten,omitempty"` // facts that were set aside, and are no longer kept
	Parked    []Parked  `json:"parked"`
}

// Parked is a fact that was set aside after its last attempt.
type Parked struct {
	Sequence uint64    `json:"sequence"`
	Event    string    `json:"event"` // its id
	Error    string    `json:"error"`
	At       time.Time `json:"at"`
}

// New is a request for a hook.
type New struct {
	URL    string      `json:"url"`
	Types  []string    `json:"types,omitempty"`
	Job    ident.JobID `json:"job,omitempty"`
	Secret string      `json:"secret,omitempty"` // whsec_ and base64 of 24 to 64 bytes; empty = a random one

	Form      Form      `json:"form,omitempty"`      // cloudevent, slack, teams or discord; empty = cloudevent
	Token     string    `json:"token,omitempty"`     // each request has it: Authorization: Bearer TOKEN
	Handshake Handshake `json:"handshake,omitempty"` // optional, required or off; empty = optional, for a chat off
	Rate      int       `json:"rate,omitempty"`      // requests per minute; 0 = as many as there are facts

	host string // of the URL, once it is checked
}

// Created answers such a request. It is the only answer that has the secret.
type Created struct {
	Hook
	Secret string `json:"secret"`
}

// bearer are tokens as RFC 6750 has them.
var bearer = regexp.MustCompile(`^([A-Za-z0-9._~+/-]+=*)?$`)

// secretPrefix begins the text of a secret (Standard Webhooks).
const secretPrefix = "whsec_"

// check returns the key of a request's secret, and everything that is wrong with the request.
func (n *New) check() ([]byte, error) {
	var bad []spec.FieldError
	wrong := func(field, message string) { bad = append(bad, spec.FieldError{Path: field, Message: message}) }
	u, err := url.Parse(n.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || len(n.URL) > limits.Text.Max {
		wrong("url", "write https://host/path, without a user, of at most "+limits.Text.String())
	} else {
		n.host = u.Hostname()
	}
	if len(n.Types) > maxTypes {
		wrong("types", "has more than "+strconv.Itoa(maxTypes)+" patterns")
	}
	for i, t := range n.Types {
		if f := view.CheckPattern("types["+strconv.Itoa(i)+"]", t); f != nil {
			bad = append(bad, *f)
		}
	}
	if n.Job != "" && n.Job.Check() != nil {
		wrong("job", strconv.Quote(limits.Shorten(string(n.Job), limits.Word.Max))+" is no id of a job")
	}
	switch n.Form = cmp.Or(n.Form, FormEvent); n.Form {
	case FormEvent, FormSlack, FormTeams, FormDiscord:
	default:
		wrong("form", strconv.Quote(limits.Shorten(string(n.Form), limits.Word.Max))+" is not known: write cloudevent, slack, teams or discord")
	}
	if n.Form.chat() {
		n.Handshake = cmp.Or(n.Handshake, HandshakeOff)
	}
	switch n.Handshake = cmp.Or(n.Handshake, HandshakeOptional); n.Handshake {
	case HandshakeOptional, HandshakeRequired, HandshakeOff:
	default:
		wrong("handshake", strconv.Quote(limits.Shorten(string(n.Handshake), limits.Word.Max))+" is not known: write optional, required or off")
	}
	if n.Rate < 0 || n.Rate > maxRate {
		wrong("rate", "write how many requests a minute, 1 to "+strconv.Itoa(maxRate)+", or leave it out")
	}
	if len(n.Token) > limits.Text.Max || !bearer.MatchString(n.Token) {
		wrong("token", "is no bearer token: it has letters, digits and -._~+/ alone, and may end with =")
	}
	if n.Secret == "" {
		b := make([]byte, 32)
		rand.Read(b) //nolint:errcheck // it never fails
		n.Secret = secretPrefix + base64.StdEncoding.EncodeToString(b)
	}
	text, marked := strings.CutPrefix(n.Secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !marked || len(key) < 24 || len(key) > 64 {
		wrong("secret", "write whsec_ and base64 of 24 to 64 bytes, or leave it out")
	}
	return key, errcode.Refuse(bad)
}

// wants reports whether a hook gets facts of a type about a job.
func (h *Hook) wants(t events.Type, job ident.JobID) bool {
	if h.Job != "" && h.Job != job {
		return false
	}
	return len(h.Types) == 0 || slices.ContainsFunc(h.Types, func(p string) bool { return view.Matches(p, t) })
}

// sign returns the value of the header webhook-signature (Standard Webhooks 1.0).
func sign(key []byte, id string, at time.Time, body []byte) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// stored is a hook in the file.
type stored struct {
	Hook
	Key   []byte `json:"key"`
	Token string `json:"token,omitempty"`

	removed bool      // it gets nothing more
	next    time.Time // when the next request may be made, by the rate
}

// load reads the file of hooks; a missing one has none.
func load(file string) ([]*stored, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var content struct {
		Hooks []*stored `json:"hooks"`
	}
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "webhooks: %s: %w", file, err)
	}
	for _, s := range content.Hooks {
		if !s.Target.Granted {
			s.Target.Asked = time.Time{} // it may have been mended meanwhile
		}
	}
	return content.Hooks, nil
}

// save writes the file.
func save(file string, hooks []*stored) error {
	text, err := json.Marshal(map[string]any{"hooks": hooks})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = durable.WriteFile(file, append(text, '\n'))
	}
	if err != nil {
		return errcode.Errorf(errcode.Unavailable, "webhooks: %w", err)
	}
	return nil
}
