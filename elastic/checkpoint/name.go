package checkpoint

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
)

// Name is that of a commit, over all jobs that went on from one another: ordered by life, generation and step.
type Name struct {
	Run        uint64 `json:"life"` // 1 for a job that began from nothing, one more for each that began from a checkpoint
	Generation uint64 `json:"generation"`
	Step       uint64 `json:"step"`
}

// Compare orders names: newer ones are greater.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Run, o.Run), cmp.Compare(n.Generation, o.Generation), cmp.Compare(n.Step, o.Step))
}

func (n Name) String() string { return fmt.Sprintf("l%d/g%d/%d", n.Run, n.Generation, n.Step) }

// file is the name of the file; they sort like the names.
func (n Name) file() string {
	return fmt.Sprintf("life-%06d.generation-%010d.step-%014d.checkpoint", n.Run, n.Generation, n.Step)
}

var fileName = regexp.MustCompile(`^life-(\d+)\.generation-(\d+)\.step-(\d+)\.checkpoint$`)

func parse(file string) (n Name, ok bool) {
	m := fileName.FindStringSubmatch(file)
	if m == nil {
		return n, false
	}
	for i, to := range []*uint64{&n.Run, &n.Generation, &n.Step} {
		var err error
		if *to, err = strconv.ParseUint(m[i+1], 10, 64); err != nil {
			return n, false
		}
	}
	return n, true
}
