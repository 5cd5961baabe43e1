package refusal

import (
	"testing"
	"time"
)

func TestSubjects(t *testing.T) {
	var s Subjects
	began := time.Now()
	s.Note(`nats: permissions violation: Permissions Violation for Subscription to "a.c"`)
	s.Note(`nats: permissions violation: Permissions Violation for Publish to "a.b"`)
	if !s.Since("a.b", began) || s.Since("a.c", began) || s.Since("a.b", time.Now().Add(time.Second)) {
		t.Errorf("recorded: %v", s.at)
	}
	if s.Forget(); s.Since("a.b", began) {
		t.Error("it is not forgotten")
	}
}
