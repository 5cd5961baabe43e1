package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/regroup-io/regroup/collective/nccl"
)

// table prints a line per check as soon as it is known: a hang then shows where.
type table struct {
	out                   io.Writer
	passed, absent, wrong int
}

func (t *table) line(what, result, detail string) {
	fmt.Fprintf(t.out, "%-38s %-18s %s\n", what, result, strings.Join(strings.Fields(detail), " "))
}

// must adds a check that every machine passes, or that the library's version does not support.
func (t *table) must(what, detail string, err error) bool {
	switch {
	case err == nil:
		t.passed++
		t.line(what, "ok", detail)
	case errors.Is(err, nccl.ErrUnsupported):
		t.cannot(what, err.Error())
	default:
		t.wrong++
		t.line(what, "FAILED", err.Error())
	}
	return err == nil
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
