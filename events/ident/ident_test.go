package ident

import (
	"errors"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
)

func TestTokens(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "node-7": true, "0": true, strings.Repeat("a", 63): true, "a--b": true,
		"": false, strings.Repeat("a", 64): false, "-a": false, "a-": false, "A": false, "a.b": false, "a b": false, "*": false, ">": false, "é": false, "a_b": false,
	} {
		err := NodeID(s).Check()
		if (err == nil) != ok || (err != nil && !errors.Is(err, errcode.ErrInvalid)) {
			t.Errorf("%q: %v, want legal = %v", s, err, ok)
		}
		if (JobID(s).Check() == nil) != ok {
			t.Errorf("job %q: want legal = %v", s, ok)
		}
	}
}

// TestNamesAreShownAsWritten: a refusal shows the characters of any script, not their bytes.
func TestNamesAreShownAsWritten(t *testing.T) {
	for s, want := range map[string]string{
		"训练": `job "训练" contains "训": only a-z, 0-9 and '-' are allowed`, "train-é": `job "train-é" contains "é": only a-z, 0-9 and '-' are allowed`,
		strings.Repeat("训", 64): `job "` + strings.Repeat("训", 64) + `" has 64 characters, at most 63 are allowed`,
	} {
		if err := JobID(s).Check(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNodeIDFrom(t *testing.T) {
	for host, want := range map[string]NodeID{
		"gpu-01": "gpu-01", "GPU_01.Example.com": "gpu-01-example-com", "": "node", "...": "node", "_x_": "x", "é": "node",
		strings.Repeat("a", 62) + ".b": NodeID(strings.Repeat("a", 62)),
	} {
		got := NodeIDFrom(host)
		if got != want || got.Check() != nil {
			t.Errorf("%q becomes %q, want %q", host, got, want)
		}
	}
}

func TestJobIDFrom(t *testing.T) {
	a := JobIDFrom("cifar", "/client/zoe", "1")
	if a != JobIDFrom("cifar", "/client/zoe", "1") || len(a) != len("cifar-xxxx") || a.Check() != nil {
		t.Errorf("job id %q", a)
	}
	if a == JobIDFrom("cifar", "/client/zoe", "2") || a == JobIDFrom("cifar", "/client/zoe1", "") {
		t.Error("other events name the same job")
	}
	if err := JobIDFrom(strings.Repeat("a", 58), "s", "i").Check(); err != nil {
		t.Errorf("the longest name: %v", err)
	}
}

func TestJobIDs(t *testing.T) {
	for _, name := range []string{"a", "cifar", strings.Repeat("a", 58), "a-" + strings.Repeat("-", 28) + strings.Repeat("b", 28)} {
		ids := JobIDs(name, "/client/zoe", "1")
		for i, id := range ids {
			if id.Check() != nil || (i > 0 && id == ids[i-1]) || (i > 0 && !strings.HasSuffix(string(id), Origin("/client/zoe", "1")[:jobDigits[i]])) {
				t.Errorf("%s: id %d is %q: %v", name, i, id, id.Check())
			}
		}
		if ids[0] != JobIDFrom(name, "/client/zoe", "1") || ids[len(ids)-1] == JobIDs(name, "/client/zoe", "2")[len(ids)-1] {
			t.Errorf("%s: %v", name, ids)
		}
	}
}
