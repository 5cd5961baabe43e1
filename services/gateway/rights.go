package gateway

import (
	"net/http"
	"strings"
	"sync"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/gateway/tokens"
)

// forbidden is the refusal of something that needs other rights.
func forbidden(format string, args ...any) error {
	return withStatus(http.StatusForbidden, errcode.Errorf(errcode.Invalid, format, args...))
}

// owns refuses a change of a job that the caller may not change: a submitter may change the jobs
// that it has submitted.
func owns(who tokens.Principal, v events.JobView) error {
	if who.Role.Includes(tokens.Operator) || v.By == sourceOf(who) {
		return nil
	}
	return forbidden("%s was submitted by %s: a submitter may change its own jobs only", v.Job, v.By)
}

// runAs makes a job run as the user of a token, if it has one.
func runAs(who tokens.Principal, job *spec.Job) error {
	if wrong := job.RunAs(who.User, who.Name); wrong != nil {
		return withStatus(http.StatusForbidden, errcode.Refuse([]spec.FieldError{*wrong}))
	}
	return nil
}

// mayPublish refuses a command that the caller may not publish, and makes a job run as its user.
func (g *Gateway) mayPublish(who tokens.Principal, e *events.Event) error {
	if s, ok := e.Body.(events.JobSubmit); ok {
		if err := runAs(who, &s.Spec); err != nil {
			return err
		}
		e.Body = s
	}
	if s, ok := events.SubmitterOf(e.Source); ok {
		return withStatus(http.StatusForbidden, wrong("source", "is that of "+s.Name+", who publishes to the broker: name another one"))
	}
	if events.OfCluster(e.Source) {
		return withStatus(http.StatusForbidden, wrong("source", "is that of a part of the cluster: name another one"))
	}
	if others := strings.HasPrefix(e.Source+"/", sourceOf(tokens.Owner)+"/") && e.Source != sourceOf(who); others {
		return withStatus(http.StatusForbidden, wrong("source", "is that of another token: commands of "+who.Name+" are from "+sourceOf(who)+", or from a source of your own"))
	}
	if who.Role.Includes(tokens.Operator) {
		return nil
	}
	if e.Source != sourceOf(who) { // it says whose job it is
		return withStatus(http.StatusForbidden, wrong("source", "commands of "+who.Name+" are from "+sourceOf(who)))
	}
	var job ident.JobID
	switch b := e.Body.(type) {
	case events.JobSubmit:
		return nil
	case events.JobScale:
		job = b.Job
	case events.JobStop:
		job = b.Job
	case events.JobRemove:
		job = b.Job
	default:
		return forbidden("%s is a %s: %s needs a token of the role %s", who.Name, who.Role, e.Body.Type(), tokens.Operator)
	}
	v, _, ok := g.feed.Job(job)
	if !ok {
		return errcode.Errorf(errcode.NotFound, "there is no job %q", job)
	}
	return owns(who, v)
}

// shares counts the open streams of each token.
type shares struct {
	mu  sync.Mutex
	all int
	of  map[tokens.Principal]int
}

// enter takes a place for a stream until leave is called: nobody can take all of them.
func (s *shares) enter(who tokens.Principal) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	operator := who.Role.Includes(tokens.Operator)
	switch {
	case !operator && s.of[who] >= streamsEach:
		return nil, errcode.Errorf(errcode.Exhausted, "%s has %d streams open, which is the share of a token: close some", who.Name, streamsEach)
	case s.all >= maxStreams, !operator && s.all >= maxStreams-operatorsOwn:
		return nil, errcode.Errorf(errcode.Exhausted, "%d streams are open, which is the limit: close some, or start another gateway", s.all)
	case s.of == nil:
		s.of = map[tokens.Principal]int{}
	}
	s.all++
	s.of[who]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[who]--; s.of[who] == 0 {
			delete(s.of, who)
		}
	}, nil
}

// open returns how many streams are open.
func (s *shares) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}
