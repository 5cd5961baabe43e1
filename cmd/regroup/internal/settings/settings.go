package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Settings are defaults of flags; an empty one is unset.
type Settings struct {
	Description string `json:"description,omitempty" yaml:"description,omitempty"`
	Server      string `json:"server,omitempty" yaml:"server,omitempty"`   // NATS URLs, separated by commas
	Creds       string `json:"creds,omitempty" yaml:"creds,omitempty"`     // path of a NATS credentials file
	TLSCA       string `json:"tlsca,omitempty" yaml:"tlsca,omitempty"`     // path of the PEM file that the server is verified with
	TLSCert     string `json:"tlscert,omitempty" yaml:"tlscert,omitempty"` // path of the client's certificate, PEM
	TLSKey      string `json:"tlskey,omitempty" yaml:"tlskey,omitempty"`   // path of the client's key, PEM
	Timeout     string `json:"timeout,omitempty" yaml:"timeout,omitempty"` // like 30s
	Output      string `json:"output,omitempty" yaml:"output,omitempty"`   // form of -o, where a command has it
	Color       string `json:"color,omitempty" yaml:"color,omitempty"`     // auto, always or never
}

// Value is one setting.
type Value struct {
	Name       string // of the field and the flag
	Env        string // variable that overrides it
	Text       *string
	Connection bool // a connection setting
}

// Values lists the settings that are defaults of flags, empty ones included.
func (s *Settings) Values() []Value {
	return []Value{
		{"server", "REGROUP_SERVER", &s.Server, true},
		{"creds", "REGROUP_CREDS", &s.Creds, true},
		{"tlsca", "REGROUP_TLSCA", &s.TLSCA, true},
		{"tlscert", "REGROUP_TLSCERT", &s.TLSCert, true},
		{"tlskey", "REGROUP_TLSKEY", &s.TLSKey, true},
		{"timeout", "REGROUP_TIMEOUT", &s.Timeout, false},
		{"output", "REGROUP_OUTPUT", &s.Output, false},
		{"color", "REGROUP_COLOR", &s.Color, false},
	}
}

// Over returns s with its unset fields taken from below.
func (s Settings) Over(below Settings) Settings {
	from := below.Values()
	for i, v := range s.Values() {
		*v.Text = cmp.Or(*v.Text, *from[i].Text)
	}
	return s
}

// Shown returns s without the passwords in its URLs.
func (s Settings) Shown() Settings {
	all := strings.Split(s.Server, ",")
	for i, one := range all {
		all[i] = redacted(one)
	}
	s.Server = strings.Join(all, ",")
	return s
}

// redacted returns a URL without its password or token; of a text that is no URL it hides all that
// may be one.
func redacted(text string) string {
	u, err := url.Parse(text)
	at := strings.LastIndexByte(text, '@')
	switch {
	case at < 0:
		return text
	case err != nil || u.User == nil:
		return "xxxxx" + text[at:]
	}
	if _, has := u.User.Password(); !has { // a token
		u.User = url.User("xxxxx")
	}
	return u.Redacted()
}

// Check validates the settings; the error names the field.
func (s Settings) Check() error {
	for one := range strings.SplitSeq(s.Server, ",") {
		if u, err := url.Parse(one); s.Server != "" && (err != nil || u.Host == "") {
			return events.Errorf(events.Invalid, "server: %q is no URL: write nats://host:4222", redacted(one))
		}
	}
	if d, err := time.ParseDuration(s.Timeout); s.Timeout != "" && (err != nil || d <= 0) {
		return events.Errorf(events.Invalid, "timeout: %q is no time: write 30s", s.Timeout)
	}
	if colors := []string{"", "auto", "always", "never"}; !slices.Contains(colors, s.Color) {
		return events.Errorf(events.Invalid, "color: %q is unknown: use auto, always or never", s.Color)
	}
	if forms := []string{"", "table", "wide", "json", "yaml", "name", "text", "jsonl", "raw", "summary"}; !slices.Contains(forms, s.Output) {
		return events.Errorf(events.Invalid, "output: %q is unknown: use one of %s", s.Output, strings.Join(forms[1:], ", "))
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return events.Errorf(events.Invalid, "tlscert and tlskey: one without the other")
	}
	return nil
}

// Absolute makes the paths absolute, and checks that the files exist.
func (s Settings) Absolute() (Settings, error) {
	for _, v := range s.Values() {
		if !v.Connection || v.Name == "server" || *v.Text == "" {
			continue
		}
		at, err := filepath.Abs(*v.Text)
		if err == nil {
			_, err = os.Stat(at)
		}
		if err != nil {
			return s, events.Errorf(events.Invalid, "%s: %w", v.Name, err)
		}
		*v.Text = at
	}
	return s, nil
}

func checkName(name string) error {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
	}
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return events.Errorf(events.Invalid, "%q is no name of a context: use a-z, A-Z, 0-9, '-', '_' and '.'", name)
	}
	return nil
}

func in(path, place string, err error) error {
	if place != "" {
		place += "."
	}
	return fmt.Errorf("%s: %s%w", path, place, err)
}
