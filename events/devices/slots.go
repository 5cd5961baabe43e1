package devices

// Slots are equal GPUs of consecutive slots of a node: each slot has one of its own. Example: a
// node with eight H100 has one entry, with the count 8.
type Slots struct {
	Count     int    `json:"count" bound:"slots"`
	Model     string `json:"model,omitempty" bound:"word"` // empty = unknown
	MemoryMiB int    `json:"memory_mib,omitempty"`         // 0 = unknown
}

// OfSlots returns the GPUs of slots, of which each has its own.
func OfSlots(gpus []GPU) (all []Slots) {
	for _, g := range gpus {
		if last := len(all) - 1; last >= 0 && all[last].Model == g.Model && all[last].MemoryMiB == g.MemoryMiB {
			all[last].Count++
			continue
		}
		all = append(all, Slots{Count: 1, Model: g.Model, MemoryMiB: g.MemoryMiB})
	}
	return all
}
