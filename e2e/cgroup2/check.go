package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// places are those of the script.
var places = []string{"top", "delegated"}

// listed returns the names of the tests that the machine runs.
func listed(ctx context.Context, tests string) ([]string, error) {
	out, err := exec.CommandContext(ctx, tests, "-test.list", ".").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	without := regexp.MustCompile(python)
	return slices.DeleteFunc(strings.Fields(string(out)), without.MatchString), nil
}

// check reads what the machine says, and remembers what is wrong.
type check struct {
	tests  []string
	place  string // which tests run; empty = none
	passed map[string][]string
	wrong  []error
}

func newCheck(tests []string) *check { return &check{tests: tests, passed: map[string][]string{}} }

var (
	word   = regexp.MustCompile(`^machine: (begin|end) (\w+)(?:, status (\d+))?$`)
	result = regexp.MustCompile(`^(\s*)--- (PASS|FAIL|SKIP): (\S+)`)
)

// read takes one line.
func (c *check) read(line string) {
	if m := word.FindStringSubmatch(line); m != nil {
		if c.place = m[2]; m[1] == "end" {
			c.place = ""
			if m[3] != "0" {
				c.wrong = append(c.wrong, fmt.Errorf("%s: the tests end with %s", m[2], m[3]))
			}
		}
	}
	if m := result.FindStringSubmatch(line); m != nil {
		if m[2] != "PASS" {
			c.wrong = append(c.wrong, fmt.Errorf("%s: %s %s", c.place, m[2], m[3]))
		} else if m[1] == "" {
			c.passed[c.place] = append(c.passed[c.place], m[3])
		}
	}
	if strings.Contains(line, "is not proved") {
		c.wrong = append(c.wrong, fmt.Errorf("%s: %s", c.place, strings.TrimSpace(line)))
	}
}

// verdict returns what is wrong, or misses.
func (c *check) verdict() error {
	for _, p := range places {
		for _, t := range c.tests {
			if !slices.Contains(c.passed[p], t) {
				c.wrong = append(c.wrong, fmt.Errorf("%s: %s has not passed", p, t))
			}
		}
	}
	return errors.Join(c.wrong...)
}
