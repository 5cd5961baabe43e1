package contexts

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
)

// natsPrefix is the prefix of the names of NATS command-line contexts.
const natsPrefix = "nats:"

// natsContext reads a context of the NATS command line: nats/context/NAME.json in the same
// configuration directory. An unsupported field that affects the connection is an error.
func natsContext(getenv func(string) string, name string) (Settings, error) {
	var s Settings
	if err := checkName(name); err != nil {
		return s, err
	}
	path := inConfig(getenv, "nats", "context", name+".json")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, errcode.Errorf(errcode.NotFound, "there is no context %q of the NATS command line: %w", name, err)
	}
	if err != nil {
		return s, errcode.Errorf(errcode.Invalid, "settings: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(b, &fields); err != nil {
		return s, in(path, "", errcode.Errorf(errcode.Invalid, "%w", err))
	}
	text := func(field string) string {
		v, _ := fields[field].(string)
		delete(fields, field)
		return v
	}
	s = Settings{Description: text("description"), Server: text("url"), Creds: text("creds"), TLSCA: text("ca"), TLSCert: text("cert"), TLSKey: text("key")}
	if user, password, token := text("user"), text("password"), text("token"); user != "" || token != "" {
		s.Server = withUser(s.Server, user, password, token)
	}
	for _, field := range []string{"nkey", "nsc", "socks_proxy", "user_jwt", "user_seed", "inbox_prefix", "tls_first", "windows_cert_store", "jetstream_domain", "jetstream_api_prefix"} {
		if v := fields[field]; v != nil && v != "" && v != false {
			return s, in(path, "", errcode.Errorf(errcode.Invalid, "%s: is not understood here", field))
		}
	}
	if err := s.Check(); err != nil {
		return s, in(path, "", err)
	}
	return s, nil
}

func withUser(server, user, password, token string) string {
	as := url.UserPassword(user, password)
	if token != "" {
		as = url.User(token)
	}
	all := strings.Split(server, ",")
	for i, one := range slices.Clone(all) {
		if u, err := url.Parse(one); err == nil && u.User == nil {
			u.User = as
			all[i] = u.String()
		}
	}
	return strings.Join(all, ",")
}
