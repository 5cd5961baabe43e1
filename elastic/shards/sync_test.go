package shards

import (
	"context"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// TestWhatReplicasHaveIsNotCopied: of a tensor of which two replicas have two parts each nothing is
// copied to survive one loss, and all of it to survive two. What one member alone has is copied.
func TestWhatReplicasHaveIsNotCopied(t *testing.T) {
	tensors := []reshard.Tensor{{Name: "dealt", Width: 4, Shape: []int{8}}, {Name: "lone", Width: 4, Shape: []int{1}}}
	all := &table{tensors: tensors, number: map[string]int{"dealt": 0, "lone": 1}}
	n := needs{nodes: []string{"a", "a", "b", "b"}}
	for rank := range 4 {
		n.pieces = append(n.pieces, []reshard.Piece{{Box: reshard.Box{Offset: []int{rank % 2 * 4}, Size: []int{4}}}})
	}
	n.pieces[3] = append(n.pieces[3], reshard.Piece{Tensor: 1, Box: reshard.Box{Offset: []int{0}, Size: []int{1}}})
	for copies, want := range [][4][2]int{{}, {3: {0, 1}}, {{8, 0}, {8, 0}, {8, 0}, {8, 2}}} {
		s := New(Options{Copies: copies})
		s.agree(nil, all, n)
		for rank, list := range s.peers.copies {
			var copied [2]int // elements, by tensor
			for _, x := range list {
				for _, p := range x.Pieces {
					copied[p.Tensor] += p.Box.Elements()
				}
			}
			if copied != want[rank] {
				t.Errorf("%d copies: %v elements of rank %d are copied, want %v", copies, copied, rank, want[rank])
			}
		}
	}
}

// withOther is a world of this member and one that says something else.
type withOther struct {
	Communicator
	says []byte
}

func (w withOther) AllgatherBlobs(_ context.Context, mine []byte) ([][]byte, error) {
	return [][]byte{mine, w.says}, nil
}

// TestAnotherVersion keeps all of a part at the next member: it is refused before anything is sent.
func TestAnotherVersion(t *testing.T) {
	s := New(Options{Copies: 1})
	s.named = map[string][]int{}
	if err := s.Register(reshard.Tensor{Name: "w", Width: 4, Shape: []int{2}}, reshard.Whole([]int{2}), make([]byte, 8), false); err != nil {
		t.Fatal(err)
	}
	says, err := encode(struct{ Node string }{"b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.gatherNeeds(t.Context(), withOther{says: says}, "a"); err == nil || !strings.Contains(err.Error(), "rank 1 keeps copies of other parts") {
		t.Errorf("no word of it: %v", err)
	}
}
