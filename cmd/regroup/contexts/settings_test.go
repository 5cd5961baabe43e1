package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
)

// home is an environment with its own settings directory and files.
func home(t *testing.T, files map[string]string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) string { return map[string]string{"XDG_CONFIG_HOME": dir}[name] }
}

func TestPath(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"/c/regroup/config.yaml":                {"XDG_CONFIG_HOME": "/c", "HOME": "/home/ada"},
		"/home/ada/.config/regroup/config.yaml": {"HOME": "/home/ada"},
		"":                                      {},
	} {
		if got := Path(func(n string) string { return env[n] }); got != want {
			t.Errorf("%v: %q, want %q", env, got, want)
		}
	}
}

// TestWhatIsWrongIsNamed checks that errors name the file and the field.
func TestWhatIsWrongIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"selected: prod\n":                                       `selected: there is no context "prod": see regroup context ls`,
		"selected: prdo\ncontexts: {prod: {}}\n":                 `selected: there is no context "prdo": did you mean "prod"?`,
		"contexts: {prod: {timeout: soon}}\n":                    `contexts.prod.timeout: "soon" is no time: write 30s`,
		"contexts: {prod: {server: 'broker:4222'}}\n":            `contexts.prod.server: "broker:4222" is no URL: write nats://host:4222`,
		"contexts: {prod: {output: jsno}}\n":                     `contexts.prod.output: "jsno" is unknown`,
		"contexts: {prod: {tlscert: a.pem}}\n":                   `contexts.prod.tlscert and tlskey: one without the other`,
		"contexts: {'a b': {}}\n":                                `contexts."a b" is no name of a context`,
		"settings: {color: red}\n":                               `settings.color: "red" is unknown: use auto, always or never`,
		"contexts:\n  prod:\n    sevrer: nats://broker:4222\n":   `[3:5] unknown field "sevrer"; did you mean "server"?`,
		"settings: {timout: 5s}\n":                               `unknown field "timout"; did you mean "timeout"?`,
		"setings: {timeout: 5s}\n":                               `unknown field "setings"; did you mean "settings"?`,
		"timeout: 5s\n":                                          `unknown field "timeout"; it belongs below settings`,
		"settings: {selected: prod}\n":                           `unknown field "selected"; it belongs at the beginning of a line`,
		"settings: {colour-scheme: dark}\n":                      `unknown field "colour-scheme"; known are description, server, `,
		"contexts: [\n":                                          `sequence end token ']' not found`,
		"contexts: {prod: {server: ['nats://a', 'nats://b']}}\n": `string`,
	} {
		env := home(t, map[string]string{"regroup/config.yaml": text})
		_, err := Load(env)
		if err == nil || !strings.HasPrefix(err.Error(), Path(env)+": ") || !strings.Contains(err.Error(), want) || errcode.Of(err) == errcode.Internal {
			t.Errorf("%q: %v, want the file and %q", text, err, want)
		}
	}
}

// TestOneWinsOverTheOther checks the precedence: the named context, the selected one, the settings
// for all.
func TestOneWinsOverTheOther(t *testing.T) {
	env := home(t, map[string]string{"regroup/config.yaml": `
selected: lab
settings: {server: nats://any:4222, creds: /any.creds, timeout: 5s, color: never}
contexts:
  lab: {server: nats://lab:4222, timeout: 9s}
  plain: {output: json}
`, "nats/context/old.json": `{"url": "nats://old:4222", "user": "ada", "password": "s p", "creds": "", "color_scheme": "x"}`})
	f, err := Load(env)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Settings{
		"":         {Server: "nats://lab:4222", Timeout: "9s", Color: "never"}, // credentials are for the other server
		"plain":    {Server: "nats://any:4222", Creds: "/any.creds", Timeout: "5s", Color: "never", Output: "json"},
		"nats:old": {Server: "nats://ada:s%20p@old:4222", Timeout: "5s", Color: "never"},
	} {
		if got, err := f.Resolve(env, name); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", name, got, err, want)
		}
	}
	if _, err := f.Resolve(env, "lba"); errcode.Of(err) != errcode.NotFound || !strings.Contains(err.Error(), `did you mean "lab"`) {
		t.Errorf("a context that there is not: %v", err)
	}
	if _, err := f.Resolve(env, "nats:../x"); errcode.Of(err) != errcode.Invalid {
		t.Errorf("a name that leaves the folder: %v", err)
	}
}

// TestAForeignContextIsUnderstoodOrRefused checks that unsupported connection fields are not
// ignored.
func TestAForeignContextIsUnderstoodOrRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"url": "nats://a:4222", "nkey": "/n"}`:                 "old.json: nkey: is not understood here",
		`{"url": "nats://a:4222", "tls_first": true}`:            "old.json: tls_first: is not understood here",
		`{"url": "nats://a:4222", "cert": "/c"}`:                 "old.json: tlscert and tlskey",
		`{"url": "nats://a:4222", "nkey": "", "token": "t0ken"}`: "",
		`{`: "old.json: ",
	} {
		s, err := natsContext(home(t, map[string]string{"nats/context/old.json": text}), "old")
		switch {
		case want == "" && (err != nil || s.Server != "nats://t0ken@a:4222" || s.Shown().Server != "nats://xxxxx@a:4222"):
			t.Errorf("%s: %+v, %v", text, s, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestErrorsHoldNoPassword: nor does what is shown.
func TestErrorsHoldNoPassword(t *testing.T) {
	for _, server := range []string{"me:s3cret@broker:4222", "nats://me:s3cret@", "nats://me:s3cret@bro ker:4222", "nats://a:4222,me:s3cret@b", "s3cret@%zz"} {
		s := Settings{Server: server}
		if err := s.Check(); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", server, err)
		}
		if shown := s.Shown().Server; strings.Contains(shown, "s3cret") {
			t.Errorf("%s is shown as %s", server, shown)
		}
	}
}

// TestSavedForItsUserAlone checks the file's mode and that it is replaced atomically.
func TestSavedForItsUserAlone(t *testing.T) {
	env := home(t, nil)
	f, err := Load(env)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Put("prod", Settings{Server: "nats://me:secret@broker:4222", Output: "json"}); err != nil {
		t.Fatal(err)
	}
	f.Selected = "prod"
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	again, err := Load(env)
	if err != nil || again.Selected != "prod" || again.Contexts["prod"] != f.Contexts["prod"] {
		t.Errorf("%+v, %v", again, err)
	}
	if i, err := os.Stat(Path(env)); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
	if got := f.Contexts["prod"].Shown().Server; got != "nats://me:xxxxx@broker:4222" {
		t.Errorf("shown as %s", got)
	}
	dir := filepath.Dir(Path(env))
	if err := errors.Join(os.Remove(Path(env)), os.MkdirAll(filepath.Join(Path(env), "in-the-way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(); err == nil {
		t.Error("saved where a folder is in the way")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("left behind: %v, %v", all, err)
	}
}
