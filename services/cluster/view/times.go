package view

import (
	"strings"
	"time"
)

// Part is a part of a sentence: a text, or how long ago a time is, or how far ahead.
type Part struct {
	Text  string    `json:"text,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// at returns the text of the part at a time.
func (p Part) at(now time.Time) string {
	switch {
	case !p.Since.IsZero():
		return Span(now.Sub(p.Since))
	case !p.Until.IsZero():
		return Span(p.Until.Sub(now))
	}
	return p.Text
}

// What encloses a time in a sentence that is being made.
const timeBegins, timeEnds = "\x02", "\x03"

// since stands in a sentence for how long ago a time is.
func since(t time.Time) string { return timeBegins + "since " + t.Format(time.RFC3339Nano) + timeEnds }

// until stands in a sentence for how far ahead a time is.
func until(t time.Time) string { return timeBegins + "until " + t.Format(time.RFC3339Nano) + timeEnds }

// partsOf splits a sentence at its times. What only looks like one, in a text of others, is text.
func partsOf(sentence string) (all []Part) {
	text := ""
	for sentence != "" {
		before, after, _ := strings.Cut(sentence, timeBegins)
		inside, rest, _ := strings.Cut(after, timeEnds)
		kind, at, _ := strings.Cut(inside, " ")
		t, err := time.Parse(time.RFC3339Nano, at)
		p := Part{Since: t}
		if kind == "until" {
			p = Part{Until: t}
		}
		if text += before; err != nil || kind != "since" && kind != "until" {
			text += sentence[len(before) : len(sentence)-len(after)]
			sentence = after
			continue
		}
		if text != "" {
			all = append(all, Part{Text: text})
		}
		all, text, sentence = append(all, p), "", rest
	}
	if text != "" {
		all = append(all, Part{Text: text})
	}
	return all
}

// textOf returns the sentence at a time.
func textOf(all []Part, now time.Time) string {
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.at(now))
	}
	return b.String()
}
