package contexts

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
)

// Settings are defaults of flags; an empty one is unset.
type Settings struct {
	Description string `json:"description,omitempty" yaml:"description,omitempty"`
	Server      string `json:"server,omitempty" yaml:"server,omitempty" flag:"server" env:"REGROUP_SERVER" kind:"connection"`          // NATS URLs, separated by commas
	Creds       string `json:"creds,omitempty" yaml:"creds,omitempty" flag:"creds" env:"REGROUP_CREDS" kind:"connection,path"`         // path of a NATS credentials file
	TLSCA       string `json:"tlsca,omitempty" yaml:"tlsca,omitempty" flag:"tlsca" env:"REGROUP_TLSCA" kind:"connection,path"`         // path of the PEM file that the server is verified with
	TLSCert     string `json:"tlscert,omitempty" yaml:"tlscert,omitempty" flag:"tlscert" env:"REGROUP_TLSCERT" kind:"connection,path"` // path of the client's certificate, PEM
	TLSKey      string `json:"tlskey,omitempty" yaml:"tlskey,omitempty" flag:"tlskey" env:"REGROUP_TLSKEY" kind:"connection,path"`     // path of the client's key, PEM
	Auth        string `json:"auth,omitempty" yaml:"auth,omitempty" flag:"auth" env:"REGROUP_AUTH" kind:"connection,path"`             // path of a directory of identities
	Gateway     string `json:"gateway,omitempty" yaml:"gateway,omitempty" flag:"url" env:"REGROUP_GATEWAY_URL" kind:"connection"`      // URL of a gateway
	Timeout     string `json:"timeout,omitempty" yaml:"timeout,omitempty" flag:"timeout" env:"REGROUP_TIMEOUT"`                        // like 30s
	Output      string `json:"output,omitempty" yaml:"output,omitempty" flag:"output" env:"REGROUP_OUTPUT"`                            // form of -o, where a command has it
	Color       string `json:"color,omitempty" yaml:"color,omitempty" flag:"color" env:"REGROUP_COLOR"`                                // auto, always or never
}

// Value is one setting.
type Value struct {
	Name       string // of the field
	Flag       string // that overrides it
	Env        string // variable that overrides it
	Text       *string
	Connection bool // a connection setting
	Path       bool // of a file or directory
}

// Values lists the settings that are defaults of flags, empty ones included.
func (s *Settings) Values() (all []Value) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("yaml"), ",")
		if text, ok := v.Field(i).Addr().Interface().(*string); ok && tag.Get("flag") != "" {
			all = append(all, Value{
				name, tag.Get("flag"), tag.Get("env"), text, strings.HasPrefix(tag.Get("kind"), "connection"), strings.HasSuffix(tag.Get("kind"), "path"),
			})
		}
	}
	return all
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
	s.Server, s.Gateway = strings.Join(all, ","), redacted(s.Gateway)
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
			return errcode.Errorf(errcode.Invalid, "server: %q is no URL: write nats://host:4222", redacted(one))
		}
	}
	if u, err := url.Parse(s.Gateway); s.Gateway != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		return errcode.Errorf(errcode.Invalid, "gateway: %q is no URL: write https://host:8080", redacted(s.Gateway))
	}
	if d, err := time.ParseDuration(s.Timeout); s.Timeout != "" && (err != nil || d <= 0) {
		return errcode.Errorf(errcode.Invalid, "timeout: %q is no time: write 30s", s.Timeout)
	}
	if colors := []string{"", "auto", "always", "never"}; !slices.Contains(colors, s.Color) {
		return errcode.Errorf(errcode.Invalid, "color: %q is unknown: use auto, always or never", s.Color)
	}
	if forms := []string{"", "table", "wide", "json", "yaml", "name", "text", "jsonl", "raw", "summary"}; !slices.Contains(forms, s.Output) {
		return errcode.Errorf(errcode.Invalid, "output: %q is unknown: use one of %s", s.Output, strings.Join(forms[1:], ", "))
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return errcode.Errorf(errcode.Invalid, "tlscert and tlskey: one without the other")
	}
	return nil
}

// below returns s with its relative paths taken as below a folder, and those that begin with ~/ as
// below the home of the user.
func (s Settings) below(dir, home string) Settings {
	for _, v := range s.Values() {
		rest, ofHome := strings.CutPrefix(*v.Text, "~/")
		switch {
		case !v.Path || *v.Text == "" || filepath.IsAbs(*v.Text):
		case ofHome && home != "":
			*v.Text = filepath.Join(home, rest)
		default:
			*v.Text = filepath.Join(dir, *v.Text)
		}
	}
	return s
}

// Absolute makes the paths absolute, and checks that the files exist.
func (s Settings) Absolute() (Settings, error) {
	for _, v := range s.Values() {
		if !v.Path || *v.Text == "" {
			continue
		}
		at, err := filepath.Abs(*v.Text)
		if err == nil {
			_, err = os.Stat(at)
		}
		if err != nil {
			return s, errcode.Errorf(errcode.Invalid, "%s: %w", v.Name, err)
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
		return errcode.Errorf(errcode.Invalid, "%q is no name of a context: use a-z, A-Z, 0-9, '-', '_' and '.'", name)
	}
	return nil
}

func in(path, place string, err error) error {
	if place != "" {
		place += "."
	}
	return fmt.Errorf("%s: %s%w", path, place, err)
}
