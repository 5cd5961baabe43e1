package shards

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

// TestPartsThatAreAway: Save returns, and Copied, before they are in the registered memory; what
// needs the commit waits. If they never come it is withdrawn, and the one before counts.
func TestPartsThatAreAway(t *testing.T) {
	first, second := Commit{Generation: 1, Step: 1}, Commit{Generation: 1, Step: 2}
	for _, ok := range []bool{true, false} {
		w := newWorld(t, 1, Options{}, small...)
		w.begin(func(ctx context.Context, c *collective.Communicator, m *worker) {
			m.state.SetLive(small[0].Name, false)
			m.state.Save(ctx, c, Commit{Generation: 1}, Parting{}, true)
			m.state.Brought(false) // of a commit that waits for nothing
			if err := m.state.Settle(); err != nil {
				t.Errorf("nothing is away: %v", err)
			}
		})
		w = newWorld(t, 1, Options{}, small...)
		w.begin(func(ctx context.Context, c *collective.Communicator, m *worker) {
			if m.state.SetLive("none", true) {
				t.Error("there is no such part")
			}
			for _, x := range small {
				if !m.state.SetLive(x.Name, true) {
					t.Errorf("%s is not registered", x.Name)
				}
			}
			m.state.Save(ctx, c, first, Parting{}, false)
			if m.state.Unlike() {
				t.Error("nothing has changed")
			}
			m.parts[0].memory[0]++
			if !m.state.Unlike() {
				t.Error("a part has changed")
			}
			m.parts[0].memory[0]--
			if err := m.state.Settle(); err != nil {
				t.Error(err)
			}
			w.train(2)
			m.state.Save(ctx, c, second, Parting{}, true)
			m.state.Copied()
			pinned := m.state.Pin()
			if ok {
				w.each(func(_ int, _ part, memory, want []byte) { copy(memory, want) })
			}
			m.state.Brought(ok)
			m.state.Brought(ok) // a second time it does nothing
			parts, err := pinned.Parts()
			m.state.Unpin(pinned)
			switch {
			case !ok:
				if restored, settled := m.state.Restore(), m.state.Settle(); !errors.Is(err, errNotBrought) || !errors.Is(restored, errNotBrought) || !errors.Is(settled, errNotBrought) {
					t.Errorf("what never came is written: %v, restored: %v, and settled: %v", err, restored, settled)
				}
				w.train(1)
				return
			case err != nil:
				t.Error(err)
			}
			for i, p := range parts {
				if !slices.Equal(p.Memory, w.content[slices.IndexFunc(small, p.Tensor.Equal)]) {
					t.Errorf("part %d is written as of another commit", i)
				}
			}
			for _, p := range m.parts {
				clear(p.memory)
			}
			if err := errors.Join(m.state.Restore(), m.state.Settle()); err != nil {
				t.Error(err)
			}
			w.check("restored")
		})
		w.members[0].kept = []Commit{second, first}
		want := second
		if !ok {
			want = first
		}
		if chosen := w.begin(func(context.Context, *collective.Communicator, *worker) {}); chosen != want {
			t.Errorf("brought %t: all go on from %v, want %v", ok, chosen, want)
		}
		w.check("the next generation")
	}
}
