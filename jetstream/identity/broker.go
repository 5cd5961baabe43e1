package identity

import (
	"bytes"
	"os"
	"strings"

	"github.com/nats-io/jwt/v2"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
)

// Broker is what a broker reads from a directory.
type Broker struct {
	Operator *jwt.OperatorClaims
	Account  string // public key of the account that has the streams
	Password string // of the routes between the brokers
}

// Broker reads what a broker needs.
func (d Dir) Broker() (Broker, error) {
	var b Broker
	text, err := os.ReadFile(d.Path(operatorJWT))
	if err != nil {
		return b, errcode.Errorf(errcode.NotFound, "identities: %w", err)
	}
	if b.Operator, err = jwt.DecodeOperatorClaims(string(bytes.TrimSpace(text))); err != nil {
		return b, errcode.Errorf(errcode.Invalid, "%s: %w", d.Path(operatorJWT), err)
	}
	keys, err := d.Accounts()
	if err != nil {
		return b, err
	}
	for _, key := range keys {
		claims, err := d.Account(key)
		switch {
		case err != nil:
			return b, err
		case claims.Limits.DiskStorage == 0: // it has no streams
		case b.Account != "":
			return b, errcode.Errorf(errcode.Invalid, "%s has more than one account with streams", d.Path(accountsDir))
		default:
			b.Account = key
		}
	}
	if b.Account == "" {
		return b, errcode.Errorf(errcode.NotFound, "%s has no account with streams: copy the directory that regroup auth init has made", d.Path(accountsDir))
	}
	password, err := os.ReadFile(d.Path(routesFile))
	if err != nil {
		return b, errcode.Errorf(errcode.NotFound, "identities: %w", err)
	}
	b.Password = string(bytes.TrimSpace(password))
	return b, nil
}

// claimsOf reads the claims of a credentials file; false if there are none, which the connection
// reports.
func claimsOf(creds []byte) (*jwt.UserClaims, bool) {
	text, err := jwt.ParseDecoratedJWT(creds)
	if err != nil {
		return nil, false
	}
	claims, err := jwt.DecodeUserClaims(text)
	return claims, err == nil
}

// Forbids reports whether the permissions in a credentials file forbid to publish to a subject.
// Those that a broker has elsewhere are unknown.
func Forbids(creds []byte, subject string) bool {
	claims, ok := claimsOf(creds)
	return ok && len(claims.Pub.Allow) > 0 && !events.MatchAny(claims.Pub.Allow, subject)
}

// Deaf reports whether the permissions in a credentials file forbid to subscribe to a subject.
func Deaf(creds []byte, subject string) bool {
	claims, ok := claimsOf(creds)
	return ok && len(claims.Sub.Allow) > 0 && !events.MatchAny(claims.Sub.Allow, subject)
}

// Submitter returns the submitter that a credentials file is of; false if it is of another role,
// which may publish all commands or none.
func Submitter(creds []byte) (events.Submitter, bool) {
	claims, ok := claimsOf(creds)
	if !ok || events.MatchAny(claims.Pub.Allow, events.CommandSubject(events.JobSubmit{}.Type())) {
		return events.Submitter{}, false
	}
	for _, subject := range claims.Pub.Allow {
		if s, ok := events.SubmitterAt(events.JobSubmit{}.Type(), subject); ok {
			return s, true
		}
	}
	return events.Submitter{}, false
}

// InboxPrefix returns the private prefix of reply subjects of a credentials file: the one that its
// permissions name. Empty if they allow the usual one.
func InboxPrefix(creds []byte) string {
	claims, ok := claimsOf(creds)
	if !ok {
		return ""
	}
	for _, s := range claims.Sub.Allow {
		if prefix, ok := strings.CutSuffix(s, ".>"); ok && strings.HasPrefix(prefix, "_INBOX") && !strings.Contains(prefix, "*") {
			return prefix
		}
	}
	return ""
}
