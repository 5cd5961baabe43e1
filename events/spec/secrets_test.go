package spec

import (
	"strings"
	"testing"
)

func TestSecretsAreCheckedByName(t *testing.T) {
	for source, want := range map[string]string{
		"file:/run/secrets/token": "", "env:HF_TOKEN": "",
		"file:token": "not absolute", "file:": "not absolute", "env:": "names no variable", "env:1A": "names no variable",
		"hf_aBcDeF": "is no source", "": "is no source", "file:/a\x00b": "NUL",
	} {
		s := Job{Name: "n", Command: []string{"c"}, Workers: Workers{Min: 1, Max: 1}, Secrets: map[string]string{"HF_TOKEN": source}}.WithDefaults()
		bad := s.Check()
		switch {
		case want == "" && len(bad) > 0:
			t.Errorf("%q: %v", source, bad)
		case want != "" && (len(bad) != 1 || bad[0].Path != "secrets.HF_TOKEN" || !strings.Contains(bad[0].Message, want)):
			t.Errorf("%q: %v, want one error with %q", source, bad, want)
		case strings.Contains(strings.Join(texts(bad), " "), "aBcDeF"):
			t.Errorf("an error repeats what may be a secret: %v", bad)
		}
	}
	s := Job{
		Name: "n", Command: []string{"c"}, Workers: Workers{Min: 1, Max: 1}, Env: map[string]string{"TWICE": "x"},
		Secrets: map[string]string{"TWICE": "env:A", "RANK": "env:A", "REGROUP_TOKEN": "env:A", "a b": "env:A", "REGROUP_LOG_LEVEL": "env:A"},
	}.WithDefaults()
	if bad := s.Check(); len(bad) != len(s.Secrets) {
		t.Errorf("%d errors, want one for each of %d names: %v", len(bad), len(s.Secrets), bad)
	}
}

func texts(bad []FieldError) (all []string) {
	for _, f := range bad {
		all = append(all, f.String())
	}
	return all
}

func TestVariablesThatLookLikeSecretsAreWarnedOf(t *testing.T) {
	for name, want := range map[string]bool{
		"HF_TOKEN": true, "AWS_SECRET_ACCESS_KEY": true, "WANDB_API_KEY": true, "DB_PASSWORD": true, "wandb_apikey": true, "GITHUBTOKEN": true,
		"TOKENIZERS_PARALLELISM": false, "OMP_NUM_THREADS": false, "MONKEY": false, "KEYS": false, "PATH": false,
	} {
		got := Job{Env: map[string]string{name: "v4lue"}}.Warnings()
		if (len(got) == 1) != want {
			t.Errorf("%s: warnings %q, want one: %t", name, got, want)
		}
		if text := strings.Join(got, " "); want && (!strings.Contains(text, "secrets") || strings.Contains(text, "v4lue")) {
			t.Errorf("%s: %q names secrets, and not the value", name, text)
		}
	}
}
