package identity

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// A join token is one line: a prefix with the version, and in base64 a compressed JSON document
// followed by a checksum of all that precedes it.
const (
	joinPrefix  = "rgjoin"
	joinVersion = "1"
	checksum    = 8       // bytes
	maxToken    = 1 << 16 // bytes of a token
	maxDocument = 1 << 18 // bytes of what is compressed in it
)

// document is the content of a token. The claims are not in base64, so that they are compressed to
// a fifth: terminals pass on no more than 4095 bytes of a line.
type document struct {
	Role      access.Role  `json:"role"`
	Node      ident.NodeID `json:"node,omitempty"`
	Servers   string       `json:"servers"`
	Authority []byte       `json:"authority,omitempty"` // DER
	Header    string       `json:"header"`              // of the signed claims
	Claims    string       `json:"claims"`
	Signature []byte       `json:"signature"`
	Seed      string       `json:"seed"`
}

// token writes a token.
func (j Join) token() (string, error) {
	text, err := jwt.ParseDecoratedJWT(j.Credentials)
	if err != nil {
		return "", failed(err)
	}
	pair, err := jwt.ParseDecoratedUserNKey(j.Credentials)
	if err != nil {
		return "", failed(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return "", failed(err)
	}
	d := document{Role: j.Role, Node: j.Node, Servers: j.Servers, Seed: string(seed)}
	if d.Header, d.Claims, d.Signature, err = splitJWT(text); err != nil {
		return "", err
	}
	for rest := j.Authority; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		d.Authority = append(d.Authority, block.Bytes...)
	}
	plain, err := json.Marshal(d)
	if err != nil {
		return "", failed(err)
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		return "", failed(err)
	}
	if _, err = w.Write(plain); err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", failed(err)
	}
	start := joinPrefix + joinVersion + "_"
	sum := sha256.Sum256(append([]byte(start), b.Bytes()...))
	return start + base64.RawURLEncoding.EncodeToString(append(b.Bytes(), sum[:checksum]...)), nil
}

// splitJWT decodes the three parts of signed claims.
func splitJWT(text string) (header, claims string, signature []byte, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return "", "", nil, errcode.Errorf(errcode.Internal, "identities: signed claims of %d parts", len(parts))
	}
	var plain [3][]byte
	for n, p := range parts {
		if plain[n], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			return "", "", nil, failed(err)
		}
	}
	return string(plain[0]), string(plain[1]), plain[2], nil
}

// joinJWT is the inverse of splitJWT.
func joinJWT(header, claims string, signature []byte) string {
	return strings.Join([]string{
		base64.RawURLEncoding.EncodeToString([]byte(header)), base64.RawURLEncoding.EncodeToString([]byte(claims)), base64.RawURLEncoding.EncodeToString(signature),
	}, ".")
}

// IsJoin reports whether a text begins as a token of some version does.
func IsJoin(text string) bool { return strings.HasPrefix(text, joinPrefix) }

// ParseJoin reads a token. White space in it does not count: lines may have been broken on the way.
// Invalid with the reason, which has nothing of the token, if it is not whole.
func ParseJoin(text string) (Join, error) {
	d, err := parseDocument(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return Join{}, err
	}
	signed := joinJWT(d.Header, d.Claims, d.Signature)
	claims, err := jwt.DecodeUserClaims(signed)
	if err != nil {
		return Join{}, errcode.Errorf(errcode.Invalid, "the token has no claims of a user: %w", err)
	}
	pair, err := nkeys.FromSeed([]byte(d.Seed))
	if err != nil || public(pair) != claims.Subject {
		return Join{}, errcode.Errorf(errcode.Invalid, "the key in the token is not of its user")
	}
	j := Join{User: claims.Name, Role: d.Role, Node: d.Node, Servers: d.Servers}
	if claims.Expires > 0 {
		j.Expires = time.Unix(claims.Expires, 0)
	}
	if j.Credentials, err = jwt.FormatUserConfig(signed, []byte(d.Seed)); err != nil {
		return Join{}, errcode.Errorf(errcode.Invalid, "the token has no credentials of a user: %w", err)
	}
	certificates, err := x509.ParseCertificates(d.Authority)
	if err != nil {
		return Join{}, errcode.Errorf(errcode.Invalid, "the certificate in the token: %w", err)
	}
	for _, c := range certificates {
		j.Authority = append(j.Authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return j, nil
}

func parseDocument(text string) (d document, err error) {
	rest, ours := strings.CutPrefix(text, joinPrefix)
	version, body, versioned := strings.Cut(rest, "_")
	switch {
	case !ours || !versioned:
		return d, errcode.Errorf(errcode.Invalid, "is no join token: one is made with regroup auth issue agent NODE --token, and begins with %s%s_", joinPrefix, joinVersion)
	case version != joinVersion:
		return d, errcode.Errorf(errcode.Invalid, "the token is of version %.8q, and this program reads version %s: use the regroup that the token was made with", version, joinVersion)
	case len(text) > maxToken:
		return d, errcode.Errorf(errcode.Invalid, "a token has at most %d bytes, not %d", maxToken, len(text))
	}
	damaged := errcode.Errorf(errcode.Invalid, "the token is incomplete or damaged, its checksum does not match: copy the whole line")
	data, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || len(data) <= checksum {
		return d, damaged
	}
	data, sum := data[:len(data)-checksum], data[len(data)-checksum:]
	if want := sha256.Sum256(append([]byte(joinPrefix+version+"_"), data...)); !bytes.Equal(sum, want[:checksum]) {
		return d, damaged
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxDocument+1))
	if err != nil || len(plain) > maxDocument {
		return d, errcode.Errorf(errcode.Invalid, "the token cannot be read: it was not made by regroup auth")
	}
	if err := json.Unmarshal(plain, &d); err != nil {
		return d, errcode.Errorf(errcode.Invalid, "the token cannot be read: it was not made by regroup auth")
	}
	return d, nil
}
