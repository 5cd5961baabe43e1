package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/regroup-io/regroup/events"
)

var ofGPU = []string{"node", "slot", "gpu", "model"}

var (
	descGPUMemory      = prometheus.NewDesc("regroup_gpu_memory_bytes", "Memory of a GPU; no series while it is unknown.", ofGPU, nil)
	descGPUUsed        = prometheus.NewDesc("regroup_gpu_memory_used_bytes", "Memory of a GPU that is used, as its agent has read it last; no series while it is unknown.", ofGPU, nil)
	descGPUBusy        = prometheus.NewDesc("regroup_gpu_busy_ratio", "Part of the time before the newest reading in which a GPU ran a kernel; no series while it is unknown.", ofGPU, nil)
	descGPUTemperature = prometheus.NewDesc("regroup_gpu_temperature_celsius", "Temperature of a GPU at the newest reading; no series while it is unknown.", ofGPU, nil)
	descGPUCorrected   = prometheus.NewDesc("regroup_gpu_memory_errors_corrected", "Errors of a GPU's memory that were corrected since its driver was loaded; no series while it is unknown.", ofGPU, nil)
	descGPUUncorrected = prometheus.NewDesc("regroup_gpu_memory_errors_uncorrected", "Errors of a GPU's memory that were not corrected since its driver was loaded; no series while it is unknown.", ofGPU, nil)
	descGPUXids        = prometheus.NewDesc("regroup_gpu_driver_errors", "Errors of a GPU that its driver has reported (Xid) since its agent has started; no series while the messages are not read.", ofGPU, nil)
	descGPUAge         = prometheus.NewDesc("regroup_gpu_reading_age_seconds", "Time since the newest reading of a GPU.", ofGPU, nil)
	descGPUFault       = prometheus.NewDesc("regroup_gpu_at_fault", "1 = the slot of a GPU is in quarantine for a fault of it.", ofGPU, nil)
)

var descsGPU = []*prometheus.Desc{descGPUMemory, descGPUUsed, descGPUBusy, descGPUTemperature, descGPUCorrected, descGPUUncorrected, descGPUXids, descGPUAge, descGPUFault}

// gpus collects what is known of the GPUs of nodes that are there. A GPU without a slot of its own
// has an empty label for it.
func (m *metrics) gpus(n events.NodeView, gauge func(*prometheus.Desc, float64, ...string)) {
	if n.State != events.NodeStateReady && n.State != events.NodeStateSuspected {
		return
	}
	const mib = 1 << 20
	atFault := map[int]bool{} // by slot
	for _, q := range n.QuarantinedSlots {
		atFault[int(q.Slot)] = q.Device
	}
	for i, g := range n.GPUs {
		labels := []string{string(n.Node), "", g.ID, g.Model}
		if n.HasSlotGPUs() {
			labels[1] = strconv.Itoa(i)
			fault := 0.0
			if atFault[i] {
				fault = 1
			}
			gauge(descGPUFault, fault, labels...)
		}
		if g.MemoryMiB > 0 {
			gauge(descGPUMemory, float64(g.MemoryMiB)*mib, labels...)
		}
		r := g.Reading
		if r == nil {
			continue
		}
		gauge(descGPUAge, max(0, m.gateway.Now().Sub(r.At).Seconds()), labels...)
		if r.UsedMiB != nil {
			gauge(descGPUUsed, float64(*r.UsedMiB)*mib, labels...)
		}
		if r.BusyPercent != nil {
			gauge(descGPUBusy, float64(*r.BusyPercent)/100, labels...)
		}
		if r.Celsius != nil {
			gauge(descGPUTemperature, float64(*r.Celsius), labels...)
		}
		for d, v := range map[*prometheus.Desc]*uint64{descGPUCorrected: r.Corrected, descGPUUncorrected: r.Uncorrected, descGPUXids: r.Xids} {
			if v != nil {
				gauge(d, float64(*v), labels...)
			}
		}
	}
}
