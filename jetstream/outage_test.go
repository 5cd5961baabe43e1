package jetstream_test

import (
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// TestAStoppedBrokerIsTold: its host refuses connections. One that accepts them and says nothing is
// not known to be stopped.
func TestAStoppedBrokerIsTold(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.One(t)
	p := s.Connect(t, nil).Ports().Links
	if o := p.Outage(); o != (broker.Outage{}) {
		t.Errorf("while it is connected: %+v", o)
	}
	stopped := time.Now()
	s.Stop(0)
	jetstreamtest.Await(t, "the broker is known to be stopped", func() bool { return p.Outage().Stopped.After(stopped) })
	if p.Outage().Denied {
		t.Error("a stopped broker has refused the user")
	}
	u, err := url.Parse(s.URL())
	jetstreamtest.Must(t, err)
	mute, err := net.Listen("tcp", u.Host)
	jetstreamtest.Must(t, err)
	jetstreamtest.Await(t, "nothing is known of a broker that says nothing", func() bool { return p.Outage().Stopped.IsZero() })
	jetstreamtest.Must(t, mute.Close())
	s.Start(t, 0)
	jetstreamtest.Await(t, "it is connected again", func() bool { return p.Own().Known() && p.Outage() == (broker.Outage{}) })
}

// TestAllBrokersMustBeStopped: while one runs, services may decide.
func TestAllBrokersMustBeStopped(t *testing.T) {
	t.Parallel()
	s := jetstreamtest.Three(t)
	p := s.Connect(t, nil).Ports().Links
	jetstreamtest.Await(t, "it is connected", func() bool { return p.Own().Known() })
	s.Stop(0)
	s.Stop(1)
	jetstreamtest.Await(t, "it is connected to the third", func() bool { return p.Own().Known() && p.Outage() == (broker.Outage{}) })
	s.Stop(2)
	jetstreamtest.Await(t, "all are known to be stopped", func() bool { return !p.Outage().Stopped.IsZero() })
}

// TestARefusedUserIsTold, until it is admitted again.
func TestARefusedUserIsTold(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	i := g.issue(t, access.RoleAgent, 0)
	c := g.connect(t, i.Name)
	p := c.Ports().Links
	jetstreamtest.Must(t, g.dir.Revoke(i.Name))
	jetstreamtest.Await(t, "the user is known to be refused", func() bool { return p.Outage().Denied })
	if o := p.Outage(); !o.Stopped.IsZero() {
		t.Errorf("the broker that refuses the user counts as stopped: %+v", o)
	}
}

// TestAnAgentKnowsThatNoDiscoveryRuns, also from an account of its own, and whether another broker
// could have one.
func TestAnAgentKnowsThatNoDiscoveryRuns(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	c := g.connect(t, g.issue(t, access.RoleAgent, 0).Name)
	_, err := c.Ports().Calls.Call(jetstreamtest.Within(t, jetstreamtest.Patience), events.RequestSubject(events.ServiceDiscovery, events.VerbRenew), []byte("{}"))
	if !errors.Is(err, broker.ErrNoResponder) {
		t.Errorf("the call says %v, want %v", err, broker.ErrNoResponder)
	}
	if !c.Ports().Links.Alone() {
		t.Error("the only broker is not alone")
	}
	three := jetstreamtest.Three(t).Connect(t, nil).Ports().Links
	jetstreamtest.Await(t, "it is connected", func() bool { return three.Own().Known() })
	if three.Alone() {
		t.Error("one of three brokers is alone")
	}
}
