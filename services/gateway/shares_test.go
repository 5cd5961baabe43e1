package gateway

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/gateway/tokens"
)

// TestNobodyLogsOthersOut: who makes more links and sessions than its share ends its own, and those
// of the owner with the most make room for others.
func TestNobodyLogsOthersOut(t *testing.T) {
	now := time.Now()
	k := newKeys("owner", nil, func() time.Time { now = now.Add(time.Millisecond); return now })
	begin := func(who tokens.Principal) string {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.begin(who)
	}
	valid := func(session string) bool {
		_, ok := k.sessions[sha256.Sum256([]byte(session))]
		return ok
	}
	owner, ada := begin(tokens.Owner), begin(tokens.Principal{Name: "ada", Role: tokens.Viewer})
	link, _ := k.link(tokens.Owner)
	for range 3 * maxSessions {
		begin(tokens.Principal{Name: "eve", Role: tokens.Viewer})
		k.link(tokens.Principal{Name: "eve", Role: tokens.Viewer})
	}
	if n := len(k.sessions); n != 2+sessionsEach {
		t.Errorf("%d sessions, want %d of the flood and two others", n, sessionsEach)
	}
	for n := range 2 * maxSessions / sessionsEach { // many tokens together
		for range sessionsEach {
			begin(tokens.Principal{Name: fmt.Sprint("eve-", n), Role: tokens.Viewer})
		}
	}
	if !valid(owner) || !valid(ada) || len(k.sessions) > maxSessions {
		t.Errorf("the owner is logged in: %v, ada: %v, of %d sessions", valid(owner), valid(ada), len(k.sessions))
	}
	if _, ok := k.exchange(link); !ok {
		t.Error("the owner's link does not work any more")
	}
}

// TestNobodyTakesAllStreams: of a token, nor of all tokens but operators' together.
func TestNobodyTakesAllStreams(t *testing.T) {
	var s shares
	took := map[string]int{}
	var leave []func()
	for n := range 20 {
		who := tokens.Principal{Name: fmt.Sprint("eve-", n), Role: tokens.Submitter}
		for {
			l, err := s.enter(who)
			if err != nil {
				if errcode.Of(err) != errcode.Exhausted || (n == 0 && !strings.Contains(err.Error(), "eve-0 has 512")) {
					t.Errorf("refused with %v", err)
				}
				break
			}
			leave = append(leave, l)
			took[who.Name]++
		}
	}
	if took["eve-0"] != streamsEach || s.open() != maxStreams-operatorsOwn {
		t.Errorf("one took %d, all together %d", took["eve-0"], s.open())
	}
	l, err := s.enter(tokens.Owner)
	if err != nil {
		t.Fatalf("the owner has no place: %v", err)
	}
	for _, l := range append(leave, l) {
		l()
	}
	if s.open() != 0 || len(s.of) != 0 {
		t.Errorf("%d are open, %v", s.open(), s.of)
	}
}
