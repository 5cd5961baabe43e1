package plan_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// TestReasons checks the reason in the row of job j after these facts.
func TestReasons(t *testing.T) {
	for _, c := range []struct{ name, facts, want string }{
		{"no nodes", "submit j 2:2", "needs 2 slots, more than there are: no node takes work"},
		{"all drain", "joined n1; draining n1; submit j 1:1", "needs 1 slot, more than there are: no node takes work; n1 is draining"},
		{"taken", "joined n1; submit i 2:2; submit j 1:1", "needs 1 slot, 0 free of 2 on 1 node"},
		{"too few", "joined n1; joined n2; submit i 3:3; submit j 2:2", "needs 2 slots, 1 free of 4 on 2 nodes"},
		{"behind", "joined n1; submit i 1:1; submit h 2:2; submit j 1:1", "needs 1 slot, is queued"},
		{"may come back", "joined n1; suspected n1; submit j 1:1", "needs 1 slot, no node takes work; n1 is suspected"},
		{"all it wants", "joined n1; submit j 1:2", ""},
		{"room to grow", "joined n1; submit j 1:4", "has 2 of up to 4 workers: 0 free of 2 on 1 node"},
		{"room for no multiple", "joined n1 slots=3; submit j 2:4 multiple=2", "has 2 of up to 4 workers, and trains with a multiple of 2: 1 free of 3 on 1 node"},
		{"kept for another", "joined n1 slots=4; submit j 1:1; submit h 4:4; scale j 1:4", "has 1 of up to 4 workers: free slots are kept for h, which waits"},
		{"below min", "joined n1; joined n2; submit j 3:4; lost n2", "has 2 of at least 3 workers: 0 free of 2 on 1 node"},
		{"too few left", "joined n1; joined n2; submit j 3:4 in-process; draining n2", "has 2 of at least 3 workers: 0 free of 2 on 1 node; n2 is draining"},
		{"nothing left", "joined n1; submit j 1:2; left n1", "needs 1 slot, more than there are: no node takes work"},
		{
			"quarantined", "joined n1; quarantined n2 quarantine=3m; submit i 1:1; submit j 2:2",
			"needs 2 slots, 1 free of 2 on 1 node; n2 is quarantined until 2 Jan 12:03:00 UTC: lost 3 times within 10m",
		},
		{"quarantined", "joined n1 quarantined=1; submit j 2:2", "needs 2 slots, 1 free of 1 on 1 node; n1/1 is quarantined until 2 Jan 12:01:00 UTC: 3 failures within 10m"},
		{"excluded", "joined n1; joined n2 excluded; submit j 3:3", "needs 3 slots, more than there are: 2 free of 2 on 1 node; n2 may not be used: is not in the host list"},
		{"many closed", "joined n1; suspected n2; suspected n3; suspected n4; suspected n5; suspected n6; submit j 3:3", "needs 3 slots, 2 free of 2 on 1 node; n2 is suspected; n3 is suspected; n4 is suspected; 2 more are not usable"},
		{"all quarantined", "joined n1 quarantined=0,1; submit j 1:1", "needs 1 slot, 0 free of 0 on 1 node; n1/0 is quarantined until 2 Jan 12:01:00 UTC: 3 failures within 10m; n1/1 is quarantined until 2 Jan 12:01:00 UTC: 3 failures within 10m"},
		{"behind nobody", "joined n1 slots=1; quarantined n2 quarantine=3m; submit h 2:2; submit i 1:1; submit j 1:1", "needs 1 slot, 0 free of 1 on 1 node; n2 is quarantined until 2 Jan 12:03:00 UTC: lost 3 times within 10m"},
		{
			"no such GPU", "joined n1 slots=4 gpus=2xA100,1xT4; joined n2 slots=8 gpus=8xT4; submit j 1:1 gpu=H100 memory=80GB",
			"needs 1 slot with a GPU of model H100 with at least 80GB, more than there are: none of 12 on 2 nodes has one (2 NVIDIA A100-SXM4-40GB with 40960MiB, 9 Tesla T4 with 15360MiB, 1 without a GPU of their own)",
		},
		{"no GPU", "joined n1; submit j 1:1 gpu=any", "needs 1 slot with a GPU, more than there are: none of 2 on 1 node has one (2 without a GPU of their own)"},
		{"its name is not known", "joined n1 gpus=2x; submit j 1:1 gpu=H100", "needs 1 slot with a GPU of model H100, more than there are: none of 2 on 1 node has one (2 of an unknown model)"},
		{"many models", "joined n1 slots=4 gpus=1xa,1xT4,2x; joined n2; submit j 1:1 gpu=H100", "needs 1 slot with a GPU of model H100, more than there are: none of 6 on 2 nodes has one (3 of an unknown model, 1 Tesla T4 with 15360MiB, 2 without a GPU of their own)"},
		{"too few such GPUs", "joined n1 gpus=2xH100; joined n2; submit i 1:1 gpu=any; submit j 4:4 gpu=H100", "needs 4 slots with a GPU of model H100, more than there are: 1 free of 2 on 1 node"},
		{"GPUs are taken", "joined n1 gpus=2xH100; joined n2; submit i 2:2 gpu=any; submit j 1:1 gpu=H100", "needs 1 slot with a GPU of model H100: 0 free of 2 on 1 node"},
		{"nodes with other GPUs do not matter", "joined n1 gpus=2xH100; suspected n2 gpus=2xH100; suspected n3 gpus=2xT4; draining n4 gpus=2xH100; draining n5; submit j 3:3 gpu=H100", "needs 3 slots with a GPU of model H100: 2 free of 2 on 1 node; n2 is suspected; n4 is draining"},
		{"slots with other GPUs do not matter", "joined n1 slots=3 gpus=1xH100,1xT4,1xH100 quarantined=1,2; submit j 3:3 gpu=H100", "needs 3 slots with a GPU of model H100, more than there are: 1 free of 1 on 1 node; n1/2 is quarantined until 2 Jan 12:01:00 UTC: 3 failures within 10m"},
		{"excluded nodes with such GPUs", "joined n1 gpus=2xT4; joined n2 gpus=2xH100 excluded; joined n3 excluded; submit j 1:1 gpu=H100", "needs 1 slot with a GPU of model H100, more than there are: none of 2 on 1 node has one (2 Tesla T4 with 15360MiB); n2 may not be used: is not in the host list"},
		{"behind one that asks for the same", "joined n1 gpus=2xH100; submit i 1:1; submit h 2:2 gpu=H100; submit j 1:1 gpu=H100", "needs 1 slot with a GPU of model H100, is queued"},
		{"behind one that asks for more", "joined n1 gpus=2xH100; submit i 1:1; submit h 2:2 gpu=H100; submit j 1:1 gpu=any", "needs 1 slot with a GPU: 1 free of 2 on 1 node; 1 free slot is kept for h, which waits"},
		{"behind one that asks for a part", "joined n1 gpus=2xH100; submit i 1:1; submit h 2:2 gpu=H100; submit j 1:1", "needs 1 slot, 1 free of 2 on 1 node; 1 free slot is kept for h, which waits"},
		{"kept for one that asks for a part", "joined n1 slots=3 gpus=3xH100; joined n2 slots=1; submit i 1:1; submit j 1:1; submit h 2:2 gpu=H100; scale j 1:4", "has 2 of up to 4 workers: free slots are kept for h, which waits"},
		{"kept for two", "joined n1 gpus=2xH100; joined n2 gpus=2xT4; submit x 1:1 gpu=H100; submit y 1:1 gpu=T4; submit h 2:2 gpu=H100; submit i 2:2 gpu=T4; submit j 1:1", "needs 1 slot, 2 free of 4 on 2 nodes; 2 free slots are kept for h and i, which wait"},
		{"all such GPUs", "joined n1 gpus=2xH100; joined n2; submit j 1:3 gpu=H100", "has 2 of up to 3 workers with a GPU of model H100: 0 free of 2 on 1 node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := plan.Machine{}.New(events.PoolKey)
			for line := range strings.SplitSeq(c.facts, "; ") {
				in, err := parse(line)
				if err != nil {
					t.Fatal(err)
				}
				s, _ = plan.Machine{}.Step(s, in, noon)
			}
			if got := s.View.Jobs["j"].Waiting; got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestWhatAQueueOfGPUsSays: the view has what each kind of waiting job waits for, of a few kinds.
func TestWhatAQueueOfGPUsSays(t *testing.T) {
	s := plan.Machine{}.New(events.PoolKey)
	facts := "joined n1 gpus=2xH100; joined n2; submit i 1:1 gpu=H100; submit h 2:2 gpu=H100; submit j 1:1 gpu=H100; submit k 4:4; submit l 9:9 gpu=B200"
	for i := range 20 {
		facts += fmt.Sprintf("; submit m%d 1:1 gpu=M%d", i, i)
	}
	for line := range strings.SplitSeq(facts, "; ") {
		in, err := parse(line)
		if err != nil {
			t.Fatal(err)
		}
		s, _ = plan.Machine{}.Step(s, in, noon)
	}
	v := s.View
	if len(v.GPUQueues) != 16 {
		t.Fatalf("%d are described, want 16", len(v.GPUQueues))
	}
	none := "none of 4 on 2 nodes has one (2 NVIDIA H100 80GB HBM3 with 81559MiB, 2 without a GPU of their own)"
	if got := []any{v.Head, v.Capacity, v.MaxSlots}; !reflect.DeepEqual(got, []any{ident.JobID("k"), "3 free of 4 on 2 nodes", 4}) {
		t.Errorf("of those that ask for nothing it says %v", got)
	}
	for i, want := range map[int]events.GPUQueue{
		0:  {GPU: spec.GPU{Model: "H100"}, Head: "h", Capacity: "1 free of 2 on 1 node", MaxSlots: 2},
		1:  {GPU: spec.GPU{Model: "B200"}, Capacity: none},
		15: {GPU: spec.GPU{Model: "M13"}, Capacity: none},
	} {
		if v.GPUQueues[i] != want {
			t.Errorf("%d is %+v\nwant %+v", i, v.GPUQueues[i], want)
		}
	}
	if got := v.Jobs["m19"].Waiting; got != "needs 1 slot with a GPU of model M19, is queued" {
		t.Errorf("one that is not described says %q", got)
	}
}

// TestPoolOfALargeClusterFits: the document must fit into one message with tens of thousands of
// slots assigned.
func TestPoolOfALargeClusterFits(t *testing.T) {
	s := plan.Machine{}.New(events.PoolKey)
	step := func(line string) {
		in, err := parse(line)
		if err != nil {
			t.Fatal(err)
		}
		s, _ = plan.Machine{}.Step(s, in, noon)
	}
	for i := range 5000 {
		step("joined node-" + strings.Repeat("x", 12) + "-" + string(rune('a'+i/676)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26)) + " slots=8 gpus=8xH100")
	}
	step("submit great 1:40000")
	if got := len(s.View.Jobs["great"].Places); got != 40000 {
		t.Fatalf("%d places, want 40000", got)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := document.Encode(document.Document{Schema: document.Schema, State: raw})
	if err != nil || len(doc) > 512<<10 {
		t.Errorf("the document has %d bytes (%v), want at most half of a message", len(doc), err)
	}
}
