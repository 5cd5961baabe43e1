// Package vote is what the ranks say to each other with a commit.
package vote

import "github.com/regroup-io/regroup/elastic/internal/updates"

// Vote is what one rank says.
type Vote struct {
	Update int64 // the greatest that it knows of, see package updates
	Step   uint64
	Final  bool // it has completed the training
	Copied bool // it wants copies of all tensors
	Alike  uint64
	More   []int64 // the greatest of each counts
}

// Result is what all ranks have said.
type Result struct {
	Said   Vote    // by this rank
	Update int64   // the greatest
	Like   bool    // all are at one step, of which it is the last or not
	Alike  bool    // all say the same with Alike
	Copied bool    // one of them wants copies
	More   []int64 // the greatest of each
}

// Size is the number of values of a vote without More.
const Size = 8

// Values are a vote as numbers, of each of which the greatest counts. What must be equal is, if its
// greatest value is its smallest.
func (v Vote) Values() []int64 {
	step, last, alike := int64(v.Step), number(v.Final), int64(v.Alike>>1)
	return append([]int64{v.Update, step, -step, last, -last, number(v.Copied), alike, -alike}, v.More...)
}

// Count returns what the greatest values of all ranks say.
func (v Vote) Count(x []int64) Result {
	return Result{Said: v, Update: x[0], Like: x[1] == -x[2] && x[3] == -x[4], Copied: x[5] > 0, Alike: x[6] == -x[7], More: x[Size:]}
}

// Copies reports whether a commit that this rank asked for as a live one or not copies all tensors:
// also if members change after it.
func (r Result) Copies(live bool) bool { return !live || r.Copied || r.Update != updates.None }

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
