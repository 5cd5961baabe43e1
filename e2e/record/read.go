package record

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// History is the records of all workers of a job.
type History struct {
	Generations []*Generation // in order
	Ends        []End
}

// Generation is one generation as its members recorded it. Generations that never trained are not
// recorded.
type Generation struct {
	Number, World, Start uint64                       // Start: its first step
	shares               map[uint64]map[uint64]*share // by step and rank
	Made                 map[uint64]time.Time         // by step: when its first member had made it
	Commits              map[uint64]int               // by step: number of members that have it
	ranks                map[uint64]bool
}

type share struct {
	epoch   uint64
	samples []uint64
}

// End is a worker that has made the last step with a correct state.
type End struct{ Step, Epoch, Position uint64 }

// Read reads the records in a directory. An incomplete last line is ignored.
func Read(dir string) (*History, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.rec"))
	if err != nil {
		return nil, err
	}
	h := &History{}
	byNumber := map[uint64]*Generation{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		r := reader{h: h, generations: byNumber}
		s := bufio.NewScanner(bytes.NewReader(b[:bytes.LastIndexByte(b, '\n')+1]))
		s.Buffer(nil, 1<<20)
		for n := 1; s.Scan(); n++ {
			if err := r.line(s.Bytes()); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", f, n, err)
			}
		}
		if err := s.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	for _, g := range byNumber {
		h.Generations = append(h.Generations, g)
	}
	slices.SortFunc(h.Generations, func(a, b *Generation) int { return cmp.Compare(a.Number, b.Number) })
	return h, nil
}

// reader reads one worker's file.
type reader struct {
	h           *History
	generations map[uint64]*Generation
	rank        uint64 // its rank in the current generation
}

func (r *reader) line(b []byte) error {
	f := bytes.Fields(b)
	if len(f) < 3 || len(f[0]) != 1 {
		return fmt.Errorf("not a record: %q", b)
	}
	n := make([]uint64, len(f)-1)
	for i := range n {
		v, err := strconv.ParseUint(string(f[i+1]), 10, 64)
		if err != nil {
			return fmt.Errorf("not a record: %q: %w", b, err)
		}
		n[i] = v
	}
	at, n := time.Unix(0, int64(n[0])), n[1:]
	need := map[byte]int{'B': 4, 'S': 3, 'D': 2, 'C': 2, 'E': 3}[f[0][0]]
	if need == 0 || len(n) < need {
		return fmt.Errorf("not a record: %q", b)
	}
	if f[0][0] == 'E' {
		r.h.Ends = append(r.h.Ends, End{n[0], n[1], n[2]})
		return nil
	}
	if f[0][0] == 'B' {
		return r.begin(n)
	}
	g := r.generations[n[0]]
	if g == nil {
		return fmt.Errorf("generation %d has not begun: %q", n[0], b)
	}
	if n[1] <= g.Start {
		return fmt.Errorf("generation %d began at step %d: %q", n[0], g.Start, b)
	}
	switch f[0][0] {
	case 'S':
		if g.shares[n[1]] == nil {
			g.shares[n[1]] = map[uint64]*share{}
		}
		if g.shares[n[1]][r.rank] != nil {
			return fmt.Errorf("rank %d makes step %d of generation %d twice", r.rank, n[1], n[0])
		}
		g.shares[n[1]][r.rank] = &share{epoch: n[2], samples: n[3:]}
	case 'D':
		if old, ok := g.Made[n[1]]; !ok || at.Before(old) {
			g.Made[n[1]] = at
		}
	case 'C':
		g.Commits[n[1]]++
	}
	return nil
}

func (r *reader) begin(n []uint64) error {
	g := r.generations[n[0]]
	if g == nil {
		g = &Generation{
			Number: n[0], World: n[2], Start: n[3], shares: map[uint64]map[uint64]*share{}, Made: map[uint64]time.Time{},
			Commits: map[uint64]int{}, ranks: map[uint64]bool{},
		}
		r.generations[n[0]] = g
	}
	switch {
	case g.World != n[2] || g.Start != n[3]:
		return fmt.Errorf("generation %d: rank %d sees a world of %d at step %d, others %d at step %d", n[0], n[1], n[2], n[3], g.World, g.Start)
	case g.ranks[n[1]]:
		return fmt.Errorf("generation %d has two workers of rank %d", n[0], n[1])
	}
	g.ranks[n[1]], r.rank = true, n[1]
	return nil
}

// Tail counts steps while they are made, without reading everything again.
type Tail struct {
	Dir  string
	read map[string]int64
}

// Poll returns how many steps the workers have recorded since the last call; each worker records
// its own.
func (t *Tail) Poll() (int, error) {
	files, err := filepath.Glob(filepath.Join(t.Dir, "*.rec"))
	if err != nil {
		return 0, err
	}
	if t.read == nil {
		t.read = map[string]int64{}
	}
	steps := 0
	for _, f := range files {
		b, err := from(f, t.read[f])
		if err != nil {
			return 0, err
		}
		b = b[:bytes.LastIndexByte(b, '\n')+1]
		t.read[f] += int64(len(b))
		for line := range bytes.Lines(b) {
			if line[0] == 'D' {
				steps++
			}
		}
	}
	return steps, nil
}

func from(file string, offset int64) (b []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}
