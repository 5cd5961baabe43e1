package main

import (
	"fmt"
	"io"
	"strings"
)

// table prints a line per check as soon as it is known: a hang then shows where.
type table struct {
	out                   io.Writer
	passed, absent, wrong int
}

func (t *table) line(what, result, detail string) {
	fmt.Fprintf(t.out, "%-38s %-18s %s\n", what, result, strings.Join(strings.Fields(detail), " "))
}

// must adds a check that every machine passes.
func (t *table) must(what, detail string, err error) bool {
	if err != nil {
		t.wrong++
		t.line(what, "FAILED", err.Error())
		return false
	}
	t.passed++
	t.line(what, "ok", detail)
	return true
}

// may adds a check that depends on the machine.
func (t *table) may(what, detail string, err error) {
	if err != nil {
		t.cannot(what, err.Error())
		return
	}
	t.must(what, detail, nil)
}

func (t *table) cannot(what, reason string) {
	t.absent++
	t.line(what, "not possible here:", reason)
}

func (t *table) close() int {
	fmt.Fprintf(t.out, "%d ok, %d not possible here, %d FAILED\n", t.passed, t.absent, t.wrong)
	if t.wrong > 0 {
		return bad
	}
	return good
}
