package webhooks

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// Form is what the body of a request is.
type Form string

// Forms. Those of chats have the sentence that the command line prints for a fact.
const (
	FormEvent   Form = "cloudevent" // the fact
	FormSlack   Form = "slack"      // a message for an incoming webhook of Slack
	FormTeams   Form = "teams"      // an Adaptive Card for a workflow of Teams
	FormDiscord Form = "discord"    // a message for a webhook of Discord
)

// chat reports whether a form is that of a chat: its URL is all that a sender must know, and so a
// secret, and its target knows no handshake.
func (f Form) chat() bool { return f == FormSlack || f == FormTeams || f == FormDiscord }

// mediaType is that of the body.
func (f Form) mediaType() string {
	if f.chat() {
		return "application/json; charset=utf-8"
	}
	return "application/cloudevents+json; charset=utf-8"
}

// maxSentence bounds the sentence of a message in bytes: Slack takes 3000 characters in a section,
// Teams 28 KiB in all. Discord takes 4096 in an embed, where each may need a backslash before it.
const (
	maxSentence        = 2900
	maxDiscordSentence = 2000
)

// markdown is what has a meaning in a message of Discord.
var markdown = strings.NewReplacer(func() (pairs []string) {
	for _, c := range strings.Split("\\`*_{}[]()<>#+-.!|~:@", "") {
		pairs = append(pairs, c, "\\"+c)
	}
	return pairs
}()...)

// message is a fact for people.
type message struct {
	kind     string // such as job.failed
	about    string // a job or a node
	sentence string // empty where the kind says it all
	at       time.Time
}

// body returns what is sent for a fact.
func (f Form) body(i feed.Item) []byte {
	if !f.chat() {
		return i.Data
	}
	t := i.Event.Body.Type()
	return f.encode(message{
		kind: string(t.Family()) + "." + t.Kind(), about: i.Event.Entity,
		sentence: escape.Line(view.Describe(i.Event.Body)), at: i.Event.Time,
	})
}

// testBody returns an event that is no fact, or a message that says so.
func (f Form) testBody(id string, at time.Time) []byte {
	if f.chat() {
		return f.encode(message{kind: "webhook.tested", about: "regroup", sentence: "This is a test. It is no fact.", at: at})
	}
	return []byte(`{"specversion":"1.0","id":"` + id + `","source":"/regroup/gateway","type":"dev.regroup.webhook.tested.v1"}`)
}

type object map[string]any

func encoded(o object) []byte {
	b, _ := json.Marshal(o) // it has texts, numbers and lists alone, and never fails
	return b
}

// encode returns the message as JSON. Nothing in it is markup: a sentence has words of programs.
func (f Form) encode(m message) []byte {
	head := m.kind + " · " + m.about
	sentence := limits.Shorten(m.sentence, maxSentence)
	if sentence == "" {
		sentence = head
	}
	at := m.at.UTC().Format(time.RFC3339)
	if f == FormSlack {
		plain := func(s string) object { return object{"type": "plain_text", "text": s, "emoji": false} }
		return encoded(object{
			// What a notification shows.
			"text": strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(head + ": " + sentence),
			"blocks": []object{
				{"type": "section", "text": plain(sentence)},
				{"type": "context", "elements": []object{plain(head), plain(at)}},
			},
		})
	}
	if f == FormDiscord {
		return encoded(object{
			"allowed_mentions": object{"parse": []string{}}, // it calls nobody
			"embeds": []object{{
				"description": markdown.Replace(limits.Shorten(sentence, maxDiscordSentence)),
				"footer":      object{"text": head}, "timestamp": at,
			}},
		})
	}
	run := func(s string, more object) object {
		r := object{"type": "TextRun", "text": s}
		for k, v := range more {
			r[k] = v
		}
		return object{"type": "RichTextBlock", "inlines": []object{r}}
	}
	return encoded(object{
		"type": "message",
		"attachments": []object{{
			"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil,
			"content": object{
				"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
				"fallbackText": head + ": " + sentence,
				"body":         []object{run(head, object{"weight": "Bolder"}), run(sentence, nil), run(at, object{"isSubtle": true, "size": "Small"})},
				"msteams":      object{"width": "Full"},
			},
		}},
	})
}

// shown is the URL of a hook for lists, errors and logs: of a chat its server alone.
func (h *Hook) shown() string {
	u, err := url.Parse(h.URL)
	if !h.Form.chat() || err != nil {
		return h.URL
	}
	return u.Scheme + "://" + u.Host + "/…"
}
