package contexts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhereASettingComesFrom: flag, variable, context, settings or default, with the line of the
// file, and without a password.
func TestWhereASettingComesFrom(t *testing.T) {
	u := newUser(t)
	dir := filepath.Join(u.env["XDG_CONFIG_HOME"], "regroup")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := `selected: lab.a
settings:
  color: never
contexts:
  other: {server: nats://other:4222}
  lab.a:
    server: nats://me:s3cret@lab:4222
    creds: mine/me.creds
    tlsca: ~/ca.pem
    auth: /etc/regroup
    gateway: https://:s3cret@lab:8080
    timeout: 30s
`
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	u.env["HOME"], u.env["REGROUP_TLSCERT"] = "/home/ada", "/env.pem"
	lines := func(line string) map[string]string {
		o := u.run(line)
		if o.Exit != 0 || strings.Contains(o.Out, "s3cret") {
			t.Errorf("%s: %+v", line, o)
		}
		all := map[string]string{}
		for line := range strings.Lines(o.Out) {
			f := strings.Fields(line)
			all[f[0]] = strings.Join(f[1:], " ")
		}
		return all
	}
	expect := func(line string, want map[string]string) {
		t.Helper()
		got := lines(line)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", line, name, got[name], value)
			}
		}
	}
	in := " context lab.a, " + config + ":"
	expect("config view --origin --timeout 5s", map[string]string{
		"context": "lab.a selected, " + config + ":1",
		"server":  "nats://me:xxxxx@lab:4222" + in + "7",
		"creds":   filepath.Join(dir, "mine", "me.creds") + in + "8",
		"tlsca":   "/home/ada/ca.pem" + in + "9",
		"tlscert": "/env.pem REGROUP_TLSCERT",
		"tlskey":  "default",
		"auth":    "/etc/regroup" + in + "10",
		"gateway": "https://:xxxxx@lab:8080" + in + "11",
		"timeout": "5s --timeout",
		"output":  "table default",
		"color":   "never settings, " + config + ":3",
	})
	expect("config view", map[string]string{"timeout": "30s", "tlskey": ""})
	u.env["REGROUP_CONTEXT"] = "other"
	expect("config view --origin", map[string]string{"context": "other REGROUP_CONTEXT", "creds": "default", "server": "nats://other:4222 context other, " + config + ":5"})
	u.env["REGROUP_CONTEXT"] = ""
	expect("config view --origin --server nats://third:4222", map[string]string{"server": "nats://third:4222 --server", "creds": "default", "auth": "default", "color": "never settings, " + config + ":3"})
	if o := u.run("config view -o json"); o.Exit != 0 || !strings.Contains(o.Out, `"from": "REGROUP_TLSCERT"`) {
		t.Errorf("%+v", o)
	}
}
