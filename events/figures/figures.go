// Package figures has what is measured of the GPUs of a node before a worker runs on them, and
// compares it with what others have.
package figures

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Preflight is what was measured of the GPUs of a node.
type Preflight struct {
	Problem   string     `json:"problem,omitempty"` // why none of them was measured; empty = they were
	GPUs      []GPU      `json:"gpus,omitempty"`
	AllReduce *AllReduce `json:"all_reduce,omitempty"` // of all of them together
}

// GPU are what was measured of one GPU. A figure that is 0 was not measured.
type GPU struct {
	ID    string    `json:"id" bound:"word"` // see devices.GPU
	Model string    `json:"model,omitempty" bound:"word"`
	At    time.Time `json:"at,omitzero"`

	MatmulTFLOPS   float64 `json:"matmul_tflop_per_s,omitempty"`
	MatmulType     string  `json:"matmul_type,omitempty" bound:"word"`
	MemoryCopyGB   float64 `json:"memory_copy_gb_per_s,omitempty"` // what is read, and what is written
	HostToDeviceGB float64 `json:"host_to_device_gb_per_s,omitempty"`
	DeviceToHostGB float64 `json:"device_to_host_gb_per_s,omitempty"`

	MemoryTested int64 `json:"memory_tested_bytes,omitempty"` // written and read back
	MemoryFree   int64 `json:"memory_free_bytes,omitempty"`   // before
	MemoryTotal  int64 `json:"memory_total_bytes,omitempty"`

	NotMeasured string `json:"not_measured,omitempty"` // what, and why if it is known
	Failure     string `json:"failure,omitempty"`      // it computes wrong results, hangs, or reports an error
}

// AllReduce has the figures of an all-reduce between GPUs of one node.
type AllReduce struct {
	GPUs    int     `json:"gpus"`
	Bytes   int64   `json:"bytes,omitempty"`
	BusGB   float64 `json:"bus_gb_per_s,omitempty"`
	Failure string  `json:"failure,omitempty"`
	// NotMeasured: it has not ended in its time. It hangs, or NCCL takes longer to start.
	NotMeasured string `json:"not_measured,omitempty"`
}

// Figures are compared with others only where there are as many: the median of three does not
// follow one that is bad.
const leastCompared = 3

// speeds are the figures that are compared, and the part of the median below which one is slow.
// GPUs of one model differ by 8 % on average and 22 % at most in their work. Copies to and from the
// host also depend on the processor socket that a process has got; a link that has lost half of its
// lanes, or a generation, halves them.
var speeds = []struct {
	name, unit string
	of         func(GPU) float64
	least      float64
}{
	{"matrix product", "TFLOP/s", func(g GPU) float64 { return g.MatmulTFLOPS }, 0.8},
	{"memory", "GB/s", func(g GPU) float64 { return g.MemoryCopyGB }, 0.8},
	{"host to device", "GB/s", func(g GPU) float64 { return g.HostToDeviceGB }, 0.6},
	{"device to host", "GB/s", func(g GPU) float64 { return g.DeviceToHostGB }, 0.6},
}

// Compared is a figure of a GPU beside those of others.
type Compared struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Value  float64 `json:"value"`            // 0 = not measured
	Median float64 `json:"median,omitempty"` // 0 = of too few others
	Others int     `json:"others,omitempty"`
	Slow   bool    `json:"slow,omitempty"`
}

// String returns the figure, as "matrix product 412 TFLOP/s (median of 15 others 655)".
func (c Compared) String() string {
	value := "unknown"
	if c.Value > 0 {
		value = fmt.Sprintf("%.4g %s", c.Value, c.Unit)
	}
	if c.Median > 0 {
		value += fmt.Sprintf(" (median of %d others %.4g)", c.Others, c.Median)
	}
	return c.Name + " " + value
}

// Compare returns the figures of a GPU beside the medians of others of the same model. others may
// have this GPU too, and other models. A GPU with a failure is no measure for others.
func (g GPU) Compare(others []GPU) []Compared {
	all := make([]Compared, 0, len(speeds))
	for _, s := range speeds {
		c := Compared{Name: s.name, Unit: s.unit, Value: s.of(g)}
		var values []float64
		for _, o := range others {
			if v := s.of(o); v > 0 && o.ID != g.ID && o.Model == g.Model && o.Failure == "" && g.Model != "" && (s.unit != "TFLOP/s" || o.MatmulType == g.MatmulType) {
				values = append(values, v)
			}
		}
		if len(values) >= leastCompared {
			c.Median, c.Others = median(values), len(values)
			c.Slow = c.Value > 0 && c.Value < s.least*c.Median
		}
		all = append(all, c)
	}
	return all
}

// Unfit returns what speaks against a GPU: its failure, or figures far below those of others; empty
// = nothing.
//
// Example: slow: matrix product 412 TFLOP/s (median of 15 others 655)
func (g GPU) Unfit(others []GPU) string {
	if g.Failure != "" {
		return g.Failure
	}
	var slow []string
	for _, c := range g.Compare(others) {
		if c.Slow {
			slow = append(slow, c.String())
		}
	}
	if slow == nil {
		return ""
	}
	return "slow: " + strings.Join(slow, ", ")
}

// median returns the middle value, of two the lower one: with their mean three GPUs of five would
// be slow beside two that are twice as fast.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
