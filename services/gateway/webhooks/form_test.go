package webhooks

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/escape"
)

// slackMessage is what an incoming webhook of Slack takes, as far as it is used.
type slackMessage struct {
	Text   string `json:"text"`
	Blocks []struct {
		Type     string      `json:"type"`
		Text     *slackText  `json:"text"`
		Elements []slackText `json:"elements"`
	} `json:"blocks"`
}

type slackText struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji bool   `json:"emoji"`
}

// teamsMessage is what the trigger of a Teams workflow takes, with an Adaptive Card.
type teamsMessage struct {
	Type        string `json:"type"`
	Attachments []struct {
		ContentType string  `json:"contentType"`
		ContentURL  *string `json:"contentUrl"`
		Content     struct {
			Schema       string `json:"$schema"`
			Type         string `json:"type"`
			Version      string `json:"version"`
			FallbackText string `json:"fallbackText"`
			Body         []struct {
				Type    string `json:"type"`
				Inlines []struct {
					Type     string `json:"type"`
					Text     string `json:"text"`
					Weight   string `json:"weight"`
					Size     string `json:"size"`
					IsSubtle bool   `json:"isSubtle"`
				} `json:"inlines"`
			} `json:"body"`
			MSTeams struct {
				Width string `json:"width"`
			} `json:"msteams"`
		} `json:"content"`
	} `json:"attachments"`
}

func strictly(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// words are a reason with what is markup to Slack and to Teams.
const words = "<!channel> & **all** [here](http://elsewhere.lab) " + "\x1b[31m"

// words publishes a fact with them.
func (r *rig) words() {
	r.Helper()
	m, err := cloudevent.Encode(events.Event{ID: "fact-words", Source: "/regroup/registry", Entity: "demo-1", Time: time.Now(), Body: events.JobStopping{Job: "demo-1", Reason: words}})
	if err != nil {
		r.Fatal(err)
	}
	last, err := r.ports.Log.Publish(r.Context(), m)
	if err != nil {
		r.Fatal(err)
	}
	r.until("the feed has it", func() bool { return r.feed.Facts.Last() >= last })
}

// TestChatsGetSentences: those of the command line, in the form that the chat takes, signed like
// any other. Nothing that a program or a user has said is markup.
func TestChatsGetSentences(t *testing.T) {
	for _, form := range []Form{FormSlack, FormTeams, FormDiscord} {
		t.Run(string(form), func(t *testing.T) {
			r := newRig(t)
			h, _ := r.open(true)
			c, err := h.Add(t.Context(), New{URL: r.url + "/take", Form: form})
			if err != nil || c.Handshake != HandshakeOff {
				t.Fatalf("%+v %v", c, err)
			}
			r.words()
			r.until("it is there", func() bool { return len(r.ids()) == 1 })
			if err := h.Test(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(c.Secret, secretPrefix))
			if err != nil {
				t.Fatal(err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.opts) > 0 {
				t.Error("a chat was asked for its permission")
			}
			for i, header := range r.got {
				if header.Get("Content-Type") != "application/json; charset=utf-8" {
					t.Errorf("it is %s", header.Get("Content-Type"))
				}
				seconds, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
				if want := sign(key, header.Get("webhook-id"), time.Unix(seconds, 0), []byte(r.bodies[i])); err != nil || header.Get("webhook-signature") != want {
					t.Errorf("the signature is wrong: %v", err)
				}
			}
			map[Form]func(t *testing.T, fact, test string){FormSlack: inSlack, FormTeams: inTeams, FormDiscord: inDiscord}[form](t, r.bodies[0], r.bodies[1])
		})
	}
}

func inSlack(t *testing.T, fact, test string) {
	t.Helper()
	var m, tried slackMessage
	strictly(t, fact, &m)
	strictly(t, test, &tried)
	if want := "job.stopping · demo-1: &lt;!channel&gt; &amp; **all**"; !strings.HasPrefix(m.Text, want) {
		t.Errorf("a notification shows %q, want %q", m.Text, want)
	}
	if len(m.Blocks) != 2 || m.Blocks[0].Type != "section" || m.Blocks[1].Type != "context" || len(m.Blocks[1].Elements) != 2 {
		t.Fatalf("%s", fact)
	}
	if s := m.Blocks[0].Text; s.Type != "plain_text" || s.Text != escape.Line(words) {
		t.Errorf("%+v", s)
	}
	if s := m.Blocks[1].Elements[0]; s.Type != "plain_text" || s.Text != "job.stopping · demo-1" {
		t.Errorf("%+v", s)
	}
	if tried.Blocks[0].Text.Text != "This is a test. It is no fact." {
		t.Errorf("%s", test)
	}
}

func inTeams(t *testing.T, fact, test string) {
	t.Helper()
	var m, tried teamsMessage
	strictly(t, fact, &m)
	strictly(t, test, &tried)
	if m.Type != "message" || len(m.Attachments) != 1 || m.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" || !strings.Contains(fact, `"contentUrl":null`) {
		t.Fatalf("%s", fact)
	}
	card := m.Attachments[0].Content
	if card.Type != "AdaptiveCard" || card.Version != "1.4" || card.Schema != "http://adaptivecards.io/schemas/adaptive-card.json" || len(card.Body) != 3 {
		t.Fatalf("%+v", card)
	}
	for i, want := range []string{"job.stopping · demo-1", escape.Line(words)} {
		// The text of a TextBlock would be Markdown.
		if b := card.Body[i]; b.Type != "RichTextBlock" || len(b.Inlines) != 1 || b.Inlines[0].Type != "TextRun" || b.Inlines[0].Text != want {
			t.Errorf("%+v, want %q", b, want)
		}
	}
	if tried.Attachments[0].Content.Body[1].Inlines[0].Text != "This is a test. It is no fact." {
		t.Errorf("%s", test)
	}
}

// discordMessage is what a webhook of Discord takes, as far as it is used.
type discordMessage struct {
	Mentions struct {
		Parse []string `json:"parse"`
	} `json:"allowed_mentions"`
	Embeds []struct {
		Description string                `json:"description"`
		Footer      struct{ Text string } `json:"footer"`
		Timestamp   time.Time             `json:"timestamp"`
	} `json:"embeds"`
}

func inDiscord(t *testing.T, fact, test string) {
	t.Helper()
	var m, tried discordMessage
	strictly(t, fact, &m)
	strictly(t, test, &tried)
	if len(m.Embeds) != 1 || m.Mentions.Parse == nil || len(m.Mentions.Parse) != 0 || m.Embeds[0].Timestamp.IsZero() {
		t.Fatalf("%s", fact)
	}
	if e := m.Embeds[0]; !strings.HasPrefix(e.Description, `\<\!channel\> & \*\*all\*\* \[here\]\(http\://elsewhere\.lab\)`) || e.Footer.Text != "job.stopping · demo-1" {
		t.Errorf("%+v", e)
	}
	if tried.Embeds[0].Description != `This is a test\. It is no fact\.` {
		t.Errorf("%s", test)
	}
}

// TestLongSentencesFit into what a chat takes.
func TestLongSentencesFit(t *testing.T) {
	long := message{kind: "job.failed", about: "demo-1", sentence: strings.Repeat("ä<", 20_000), at: time.Unix(0, 0)}
	var m slackMessage
	strictly(t, string(FormSlack.encode(long)), &m)
	if n := len([]rune(m.Blocks[0].Text.Text)); n > 3000 || n < 1000 {
		t.Errorf("a section of %d characters, at most 3000", n)
	}
	if n := len(FormTeams.encode(long)); n > 28<<10 {
		t.Errorf("a card of %d bytes, at most 28 KiB", n)
	}
	long.sentence = strings.Repeat("*", 20_000)
	var d discordMessage
	strictly(t, string(FormDiscord.encode(long)), &d)
	if n := len([]rune(d.Embeds[0].Description)); n > 4096 || n < 3000 {
		t.Errorf("an embed of %d characters, at most 4096", n)
	}
}

// TestTheURLOfAChatIsASecret: it is in the file of webhooks, and nowhere else.
func TestTheURLOfAChatIsASecret(t *testing.T) {
	const secret = "B0SECRETPART"
	r := newRig(t)
	r.answers = func(int) int { return http.StatusForbidden }
	h, _ := r.open(true)
	var mu sync.Mutex
	var logged bytes.Buffer
	h.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &logged}, nil))
	var said []string
	for _, n := range []New{
		{URL: r.url + "/services/" + secret, Form: FormSlack},
		{URL: "http://127.0.0.1:1/workflows/" + secret + "?sig=" + secret, Form: FormTeams},
		{URL: "http://127.0.0.1:1/workflows/" + secret, Form: FormTeams, Handshake: HandshakeOptional},
	} {
		c, err := h.Add(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c)
		if err != nil || !strings.HasSuffix(c.URL, "/…") {
			t.Errorf("%s %v", c.URL, err)
		}
		said = append(said, string(text), fmt.Sprint(h.Test(t.Context(), c.ID)))
	}
	_, err := h.Add(t.Context(), New{URL: "http://127.0.0.1:1/" + secret, Form: FormSlack, Handshake: HandshakeRequired})
	if errcode.Of(err) != errcode.Unavailable {
		t.Errorf("%v", err)
	}
	r.words()
	r.until("it was set aside by all", func() bool {
		for _, x := range h.All() {
			if len(x.Parked) == 0 {
				return false
			}
		}
		return true
	})
	for _, x := range h.All() {
		_, err := h.Replay(t.Context(), x.ID)
		said = append(said, fmt.Sprint(err))
	}
	text, jsonErr := json.Marshal(h.All())
	mu.Lock()
	said = append(said, fmt.Sprint(err), string(text), logged.String())
	mu.Unlock()
	for _, s := range said {
		if strings.Contains(s, secret) {
			t.Errorf("it is shown: %s", s)
		}
	}
	if jsonErr != nil || !strings.Contains(said[len(said)-1], "127.0.0.1:1/…") {
		t.Errorf("the log does not name the server: %v\n%s", jsonErr, said[len(said)-1])
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// TestAFormIsKnown, or is refused by its name.
func TestAFormIsKnown(t *testing.T) {
	r := newRig(t)
	h, _ := r.open(true)
	_, err := h.Add(t.Context(), New{URL: r.url, Form: "irc"})
	var refused *errcode.ValidationError
	if !errors.As(err, &refused) || len(refused.Fields) != 1 || refused.Fields[0].Path != "form" {
		t.Errorf("%v", err)
	}
}
