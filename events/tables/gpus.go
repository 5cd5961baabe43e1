package tables

// SlotGPUs are equal GPUs of consecutive slots of a node: each slot has one of its own. Example: a
// node with eight H100 has one entry, with the count 8.
type SlotGPUs struct {
	Count     int    `json:"count" bound:"slots"`
	Model     string `json:"model,omitempty" bound:"word"` // empty = unknown
	MemoryMiB int    `json:"memory_mib,omitempty"`         // 0 = unknown
}

// AppendGPU appends the GPU of the next slot.
func AppendGPU(all []SlotGPUs, model string, memoryMiB int) []SlotGPUs {
	if last := len(all) - 1; last >= 0 && all[last].Model == model && all[last].MemoryMiB == memoryMiB {
		all[last].Count++
		return all
	}
	return append(all, SlotGPUs{Count: 1, Model: model, MemoryMiB: memoryMiB})
}
