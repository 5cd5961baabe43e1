package main

import (
	"net/url"
	"testing"
)

func TestSourceOfAnyUser(t *testing.T) {
	for name, want := range map[string]string{
		"zoe":            "/client/zoe",
		"zoe@lab.org":    "/client/zoe@lab.org",
		`LAB\zoe`:        "/client/LAB%5Czoe",
		"zoë":            "/client/zo%C3%AB",
		"the 1st #100% ": "/client/the%201st%20%23100%25%20",
	} {
		got := sourceOf(name)
		if u, err := url.Parse(got); got != want || err != nil || u.String() != got || u.Path != "/client/"+name {
			t.Errorf("%q: %q, %v, want %q", name, got, err, want)
		}
	}
}
