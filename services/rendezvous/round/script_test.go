package round

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
)

// TestScripts runs every script in testdata: lines that begin with "> " are commands, the rest is
// their expected output.
func TestScripts(t *testing.T) { golden.Scripts(t, play) }

func play(t *testing.T, script string) string {
	r := newRig()
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") || line == "" {
			out.WriteString(line + "\n")
		}
		if cmd, ok := strings.CutPrefix(line, "> "); ok {
			out.WriteString(line + "\n" + r.do(t, strings.Fields(cmd)))
		}
	}
	return out.String()
}

// rig is one round with its own clock.
type rig struct {
	s      State
	now    time.Time
	number uint64
	spec   spec.Job
}

func newRig() *rig {
	return &rig{s: Machine{}.New("j-1"), now: time.Unix(1000, 0).UTC(), spec: spec.Job{Name: "j", Command: []string{"x"}, Recovery: spec.RecoveryInProcess}.WithDefaults()}
}

func (r *rig) step(b events.Body) string {
	r.number++
	var d events.Decision
	r.s, d = Machine{}.Step(r.s, events.Input{ID: strconv.FormatUint(r.number, 10), Number: r.number, Nonce: "n", Body: b}, r.now)
	return show(r.s, d)
}

func (r *rig) do(t *testing.T, f []string) string {
	arg := map[string]string{}
	var words []string
	for _, w := range f[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			arg[k] = v
		} else {
			words = append(words, w)
		}
	}
	num := func(key string, def int) int {
		if v, ok := arg[key]; ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatalf("%v: %v", f, err)
			}
			return n
		}
		return def
	}
	incarnation := func(p ident.Place) ident.Incarnation {
		if v, ok := arg["incarnation"]; ok {
			return ident.Incarnation(v)
		}
		return ident.Incarnation(fmt.Sprintf("%s#%d", p, num("attempt", 1)))
	}
	var place ident.Place
	if len(words) > 0 {
		node, slot, _ := strings.Cut(words[0], "/")
		n, _ := strconv.Atoi(slot)
		place = ident.Place{Node: ident.NodeID(node), Slot: ident.Slot(n)}
	}
	ref := tables.WorkerRef{Job: "j-1", Place: place, Incarnation: incarnation(place), Attempt: num("attempt", 1), Generation: ident.Generation(num("g", 0))}
	fact := events.NodeFact{Node: place.Node, Incarnation: ident.Incarnation(arg["incarnation"])}
	ends := func() (l leases.Ends) {
		if d, err := time.ParseDuration(arg["lease"]); err == nil {
			l = leases.Ends{Restart: r.now.Add(d), InPlace: r.now.Add(20 * d)}
		}
		return l
	}
	fact.LeaseEnds = ends()
	about := func() events.NodeFact {
		f := fact
		f.Incarnation = ident.Incarnation(cmp.Or(arg["incarnation"], "agent-1"))
		f.Disconnected = slices.Contains(words, "disconnected")
		return f
	}
	if b := r.nodes(f[0], place.Node, arg, num); b != nil {
		return r.step(b)
	}
	switch f[0] {
	case "place":
		p := events.PlacementSet{Job: "j-1", Spec: r.spec, Reason: "because", Workers: spec.Workers{Min: num("min", 2), Max: num("max", 4)}}
		if _, ok := arg["resets"]; ok {
			n := num("resets", 0)
			p.Spec.Elastic.ResetLimit = &n
		}
		p.Spec.Elastic.MultipleOf = num("multiple", 0)
		if arg["recovery"] == "restart" {
			p.Spec.Recovery = spec.RecoveryRestart
		}
		for _, w := range words {
			node, slot, _ := strings.Cut(w, "/")
			n, _ := strconv.Atoi(slot)
			p.Places = append(p.Places, ident.Place{Node: ident.NodeID(node), Slot: ident.Slot(n)})
		}
		if a := arg["agents"]; a != "" {
			for _, id := range strings.Split(a, ",") {
				p.Agents = append(p.Agents, ident.Incarnation(id))
			}
		}
		if g := arg["gone"]; g != "" {
			p.LostNodes, p.LeaseEnds = []ident.NodeID{ident.NodeID(g)}, ends()
			if a := arg["incarnation"]; a != "" {
				p.LostAgents = []ident.Incarnation{ident.Incarnation(a)}
			}
		}
		return r.step(p)
	case "join":
		j := events.MemberJoin{
			Job: "j-1", Place: place, Incarnation: incarnation(place), Agent: ident.Incarnation(cmp.Or(arg["agent"], "agent-1")), Attempt: num("attempt", 1),
			Address: place.String(), Left: ident.Generation(num("left", 0)), Planned: slices.Contains(words, "planned"), NoticeMS: 1,
			Unsynced: slices.Contains(words, "unsynced"),
		}
		if step := num("step", 0); step > 0 {
			j.Commit = tables.Commit{Generation: j.Left, Step: uint64(step)}
		}
		if a, ok := arg["accused"]; ok {
			n, _ := strconv.Atoi(a)
			j.Accused = []int{n}
		}
		if b, ok := arg["broken"]; ok { // who could not reach whom
			var pair [2]int
			if _, err := fmt.Sscanf(b, "%d-%d", &pair[0], &pair[1]); err != nil {
				t.Fatalf("%v: %v", f, err)
			}
			j.Broken = [][2]int{pair}
		}
		return r.step(j)
	case "exit":
		w := events.WorkerExited{WorkerRef: ref, ExitCode: num("code", -1), Done: slices.Contains(words, "done"), Asked: slices.Contains(words, "asked"), Detail: cmp.Or(arg["detail"], "killed"), AgeMS: 2, Step: uint64(num("step", 0))}
		if slices.Contains(words, "noticed") {
			return r.step(events.Notice{Exited: w})
		}
		return r.step(w)
	case "ready":
		return r.step(events.WorkerReady{WorkerRef: ref})
	case "stalled":
		return r.step(events.JobStalled{Job: "j-1", Generation: ident.Generation(num("g", 0)), Detail: "no step for 5m"})
	case "respawn":
		return r.step(events.JobRespawned{Job: "j-1", Place: place, Dead: incarnation(place), Attempt: num("attempt", 1) + 1})
	case "blame":
		return r.step(events.JobRespawnDenied{Job: "j-1", Place: place, Dead: incarnation(place)})
	case "lost":
		return r.step(events.NodeLost{NodeFact: fact})
	case "back":
		return r.step(events.NodeJoined{NodeFact: fact})
	case "suspected":
		return r.step(events.NodeSuspected{NodeFact: about()})
	case "recovered":
		return r.step(events.NodeRecovered{NodeFact: about()})
	case "draining":
		return r.step(events.NodeDraining{NodeFact: about()})
	case "left":
		return r.step(events.NodeLeft{NodeFact: fact})
	case "heartbeat":
		return r.step(events.Heartbeat{Node: place.Node, Incarnation: ident.Incarnation(arg["incarnation"]), Revisions: map[ident.JobID]uint64{"j-1": uint64(num("revision", 0))}})
	case "peers":
		return r.step(events.PeersQuery{Job: "j-1", Generation: ident.Generation(num("g", 0)), Ranks: []int{num("rank", 0)}})
	case "finishing":
		return r.step(events.JobFinishing{Job: "j-1"})
	case "stopping":
		return r.step(events.JobStopping{Job: "j-1", Reason: "asked"})
	case "ended":
		return r.step(events.JobSucceeded{JobEnd: events.JobEnd{Job: "j-1", Reason: "all done"}})
	case "away": // no replica is running
		d, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatal(err)
		}
		r.now = r.now.Add(d)
		return r.step(events.Tick{})
	case "wait":
		d, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatal(err)
		}
		end := r.now.Add(d)
		var out string
		for { // like the controller: a tick at each deadline on the way
			dl := Machine{}.Deadline(r.s)
			if dl.IsZero() || dl.After(end) {
				break
			}
			r.now = dl
			out += r.step(events.Tick{})
		}
		r.now = end
		if out == "" {
			out = "  nothing happens\n"
		}
		return out
	}
	t.Fatalf("unknown command %v", f)
	return ""
}

// show formats a decision.
func show(s State, d events.Decision) string {
	var b strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&b, "  "+format+"\n", a...) }
	for _, f := range d.Facts {
		switch x := f.Body.(type) {
		case events.RoundOpened:
			p("fact opened %s: %s, expects %v", x.Proposed, x.Cause.Kind, x.Expected)
		case events.RoundDelayed:
			p("fact delayed %s: %g ms before attempt %d, after %d without progress", x.Proposed, x.WaitMS, x.Attempt, x.NoProgress)
		case events.RoundSealed:
			var m []string
			for _, y := range x.Members {
				m = append(m, fmt.Sprintf("%d=%s#%d", y.Rank, y.Place, y.Attempt))
			}
			p("fact sealed %s: %s, %s", x.Generation, x.Cause.Kind, strings.Join(m, " "))
			if x.Cause.Kind == events.CauseLink {
				p("  %s", x.Cause.Detail)
			}
			if x.NoProgress > 1 {
				p("  after %d without progress", x.NoProgress)
			}
			if len(x.Spares) > 0 {
				p("  spares %v", x.Spares)
			}
			if len(x.Excluded) > 0 {
				p("  excluded %v", x.Excluded)
			}
		case events.RoundMissed:
			var m []string
			for _, y := range x.Missing {
				m = append(m, y.Place.String())
			}
			p("fact missed %s: %s", x.Proposed, cmp.Or(strings.Join(m, " "), "nobody any more"))
		case events.RoundParticipantsSet:
			p("fact gathered round %d: %v have %d places (%s)", x.Round, x.Nodes, len(x.Places), x.Reason)
		case events.RoundClosed:
			p("fact closed: %s", x.Reason)
		}
	}
	for _, l := range d.Launches {
		var m []string
		for _, y := range l.Members {
			from := ""
			if y.Rank < 0 && len(y.Peers) > 0 {
				from = fmt.Sprint("<", slices.Sorted(maps.Keys(y.Peers)))
			}
			if y.SpareRank > 0 {
				from = fmt.Sprintf(" gives as %d, its node as %d", y.SpareRank, y.SpareRank-y.LocalRank)
			}
			leaves := ""
			if y.Leaving {
				leaves = " leaves"
			}
			m = append(m, fmt.Sprintf("%d:r%d#%d%s%s", y.Place.Slot, y.Rank, y.Attempt, from, leaves))
		}
		planned := ""
		if l.Planned {
			planned = " planned"
		}
		if l.Restarts > 0 {
			planned += fmt.Sprintf(" restarts=%d", l.Restarts)
		}
		p("launch %s r%d: %s %s%s [%s]", l.Node, l.Revision, l.Phase, l.Generation, planned, strings.Join(m, " "))
		if s.Nodes != nil && l.Phase == events.PhaseStop {
			p("  because %s", l.Reason)
		}
	}
	for _, k := range d.Hints {
		if g, ok := k.Body.(events.RendezvousStatus); ok {
			p("published: %s", showGathering(g))
		} else {
			p("poke: abandon")
		}
	}
	if d.Refusal != nil {
		p("refused (%s): %s", errcode.Of(d.Refusal), d.Refusal)
	}
	switch x := d.Reply.(type) {
	case events.MemberWaiting:
		p("reply: proposed %s sealed=%t over=%t removed=%t", x.Proposed, x.Sealed, x.Over, x.Removed)
	case events.NodeMembership:
		p("reply: %s %s", x.Membership, x.Reason)
	case events.PeersAnswer:
		p("reply: %v", x.Addresses)
	}
	if s.Nodes != nil {
		p("%s", showNodes(s.Nodes))
	}
	for _, l := range s.View.LinkPartitions {
		p("cut: %s-%s out=%s until %s", l.Nodes[0], l.Nodes[1], l.Excluded, l.Until.Format("04:05"))
	}
	p("%s %s", s.View.State, s.View.Generation)
	return b.String()
}
