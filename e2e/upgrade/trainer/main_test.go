package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/e2e/record"
)

// generation runs workers until they end; kill ends one of them before a step.
func generation(t *testing.T, dir string, number, world uint64, kill func(*trainer)) []error {
	t.Helper()
	errs := make([]error, world)
	var wait sync.WaitGroup
	for rank := range world {
		w := &trainer{dir: dir, samples: 50, batch: 7, every: 4, rank: rank, world: world, generation: number}
		if kill != nil {
			w.beforeStep = kill
		}
		wait.Go(func() { errs[rank] = w.run() })
	}
	wait.Wait()
	return errs
}

// TestEachSampleCountsOnce: a generation that loses a worker between two checkpoints makes steps in
// vain, and the next one makes them again.
func TestEachSampleCountsOnce(t *testing.T) {
	dir := t.TempDir()
	for _, err := range generation(t, dir, 1, 3, func(w *trainer) {
		if w.rank == 1 && w.state.Step == 10 {
			_ = w.peers[0].Close()
		}
	}) {
		if err == nil {
			t.Error("a worker that has lost another one ends well")
		}
	}
	var once sync.Once
	for rank, err := range generation(t, dir, 2, 2, func(w *trainer) {
		if w.state.Step == 30 {
			once.Do(func() {
				if err := os.WriteFile(filepath.Join(dir, "finish"), nil, 0o600); err != nil {
					t.Error(err)
				}
			})
		}
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	h, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.Check(50)
	if err != nil || a.Missing+a.Repeated > 0 || a.Finished != 2 || a.Generations != 2 || a.Steps < 31 || a.Void != 2 {
		t.Errorf("%+v, %v, want steps 9 and 10 in vain and the rest once", a, err)
	}
}

func TestALineIsReadAlone(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, "{}\nnext")
		_ = w.Close()
	}()
	line, err := readLine(r)
	rest, after := io.ReadAll(r)
	if string(line) != "{}" || string(rest) != "next" || errors.Join(err, after) != nil {
		t.Errorf("%q and %q, %v, %v", line, rest, err, after)
	}
}
