package main

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

func data(t *testing.T) (training, testing digits) {
	t.Helper()
	training, testing, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	return training, testing
}

func TestDataIsWhole(t *testing.T) {
	training, testing := data(t)
	if training.len() != 9000 || testing.len() != 1000 {
		t.Fatalf("%d and %d digits, want 9000 and 1000", training.len(), testing.len())
	}
	var seen [classes]int
	for _, l := range training.labels {
		seen[l]++
	}
	for l, n := range seen {
		if n < 500 {
			t.Errorf("only %d digits are a %d", n, l)
		}
	}
}

func TestDamagedDataIsRefused(t *testing.T) {
	raw, err := embedded.ReadFile("data/t10k-labels-idx1-ubyte.gz")
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(raw)
	bad[len(bad)/2] ^= 0xff
	for name, content := range map[string][]byte{"short": raw[:len(raw)/2], "flipped": bad, "empty": nil} {
		if _, _, err := readIDX(fstest.MapFS{"f": {Data: content}}, "f", 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, _, err := readIDX(fstest.MapFS{"f": {Data: raw}}, "f", 3); err == nil || !strings.Contains(err.Error(), "dimensions") {
		t.Errorf("labels were read as pictures: %v", err)
	}
}

// TestGradient compares the gradient with central differences, for parameters of every layer.
func TestGradient(t *testing.T) {
	training, _ := data(t)
	m := newModel(3)
	indices := []int{5, 100, 7, 4000, 8999}
	grads, none := make([]float32, parameters), make([]float32, parameters)
	m.backward(training, indices, grads)
	const h = 1e-2
	checked := 0
	for _, at := range []int{200*hidden + 3, 350*hidden + 77, 400*hidden + 127, 407*hidden + 50, atB1, atB1 + 60, atB1 + 127, atW2, atW2 + 333, atB2 - 1, atB2, atB2 + 9} {
		was := m.weights[at]
		m.weights[at] = was + h
		up := m.backward(training, indices, none)
		m.weights[at] = was - h
		down := m.backward(training, indices, none)
		m.weights[at] = was
		want := (up - down) / (2 * h)
		if math.Abs(want-float64(grads[at])) > 1e-3+0.03*math.Abs(want) {
			t.Errorf("parameter %d: gradient %v, by differences %v", at, grads[at], want)
		}
		if want != 0 {
			checked++
		}
	}
	if checked < 8 {
		t.Errorf("only %d gradients were not zero", checked)
	}
}

// TestProducts compares the fast products with the definition, for sizes with and without a
// remainder.
func TestProducts(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {4, 4, 4}, {5, 7, 3}, {2, 9, 11}, {64, 13, 10}} {
		m, k, n := s[0], s[1], s[2]
		a, b := newModel(1).weights[:m*k], newModel(2).weights[:max(m, k)*n]
		ab, left, right := make([]float32, m*n), make([]float32, k*n), make([]float32, m*k)
		multiply(ab, a, b[:k*n], m, k, n)
		multiplyLeft(left, a, b[:m*n], m, k, n)
		multiplyRight(right, ab, b[:k*n], m, n, k)
		near := func(what string, got float32, want float64) {
			if math.Abs(float64(got)-want) > 1e-4 {
				t.Errorf("%v %s: %v, want %v", s, what, got, want)
			}
		}
		for i := range m {
			for j := range n {
				var want float64
				for l := range k {
					want += float64(a[i*k+l]) * float64(b[l*n+j])
				}
				near("a*b", ab[i*n+j], want)
			}
		}
		for i := range k {
			for j := range n {
				var want float64
				for l := range m {
					want += float64(a[l*k+i]) * float64(b[l*n+j])
				}
				near("a'*b", left[i*n+j], want)
			}
		}
		for i := range m {
			for j := range k {
				var want float64
				for l := range n {
					want += float64(ab[i*n+l]) * float64(b[j*n+l])
				}
				near("c*b'", right[i*k+j], want)
			}
		}
	}
}

func TestOneEpochAloneLearns(t *testing.T) {
	training, testing := data(t)
	var out bytes.Buffer
	tr := newTrainer(config{epochs: 1, batch: 64, micro: 16, commitEvery: 10, rate: 0.1, seed: 1}, training, testing, &out)
	before := float64(tr.model.correct(testing, 0, testing.len())) / float64(testing.len())
	if err := elastic.Run(context.Background(), elastic.Options{}, tr.state, tr.train); err != nil {
		t.Fatal(err)
	}
	if before > 0.3 || tr.results.Accuracy < 0.85 {
		t.Errorf("accuracy %.3f before, %.3f after one epoch", before, tr.results.Accuracy)
	}
	ledger := tr.state.Ledger()
	if err := samples.CheckLedger(ledger); err != nil || len(ledger.Epochs) != 1 || !ledger.Epochs[0].Done {
		t.Errorf("ledger %+v: %v", ledger, err)
	}
	for _, line := range []string{"epoch 0 step 100 loss ", "epoch 0 step 141 accuracy 0."} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}

func BenchmarkStep(b *testing.B) {
	training, _, err := load("")
	if err != nil {
		b.Fatal(err)
	}
	m, grads, indices := newModel(1), make([]float32, parameters), make([]int, 64)
	for i := range indices {
		indices[i] = i * 100
	}
	for b.Loop() {
		m.backward(training, indices, grads)
	}
}
