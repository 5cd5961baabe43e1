package main

import (
	"fmt"
	"strings"
)

// notes returns the section of a version of CHANGELOG.md, without its heading, which is
// ## 0.1.0 (2026-12-31).
func notes(changelog, number string) (string, error) {
	heading, section, found := cut(changelog, number)
	switch {
	case !found:
		return "", fmt.Errorf("CHANGELOG.md has no section ## %s: make version VERSION=%s", number, number)
	case strings.Contains(heading, "unreleased"):
		return "", fmt.Errorf("CHANGELOG.md says %q: make version VERSION=%s DATE=YYYY-MM-DD", heading, number)
	case strings.TrimSpace(section) == "":
		return "", fmt.Errorf("CHANGELOG.md says nothing about %s", number)
	}
	return strings.TrimSpace(section) + "\n", nil
}

// dated gives the section of a version a date, or "unreleased" if date is empty; a section that is
// missing is added above the others.
func dated(changelog, number, date string) (string, error) {
	if date == "" {
		date = "unreleased"
	}
	want := "## " + number + " (" + date + ")"
	if heading, _, found := cut(changelog, number); found {
		return strings.Replace(changelog, heading+"\n", want+"\n", 1), nil
	}
	before, rest, found := strings.Cut(changelog, "\n## ")
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section")
	}
	return before + "\n" + want + "\n\n## " + rest, nil
}

// cut returns the heading of a version, and what is between it and the next one.
func cut(changelog, number string) (heading, section string, found bool) {
	var body strings.Builder
	for line := range strings.Lines(changelog) {
		switch {
		case strings.HasPrefix(line, "## "):
			if found {
				return heading, body.String(), true
			}
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == number {
				heading, found = strings.TrimRight(line, "\n"), true
			}
		case found:
			body.WriteString(line)
		}
	}
	return heading, body.String(), found
}
