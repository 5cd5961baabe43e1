package doctor

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/agent/preflight"
)

// report is what the program of agent/preflight prints of four GPUs.
const report = `{"device": "cuda", "torch": "2.11.0", "cuda": "13.0", "seconds": 6.1, "gpus": [
{"id": "GPU-a", "model": "H100", "matmul_tflop_per_s": 655, "memory_copy_gb_per_s": 3010, "memory_tested_bytes": 68719476736, "memory_free_bytes": 84000000000, "memory_total_bytes": 85000000000, "host_to_device_gb_per_s": 55, "device_to_host_gb_per_s": 54},
{"id": "GPU-b", "model": "H100", "matmul_tflop_per_s": 412, "memory_copy_gb_per_s": 3000, "host_to_device_gb_per_s": 27, "device_to_host_gb_per_s": 54},
{"id": "GPU-c", "model": "H100", "matmul_tflop_per_s": 650, "memory_copy_gb_per_s": 3000, "memory_free_bytes": 42500000000, "memory_total_bytes": 85000000000, "host_to_device_gb_per_s": 55, "device_to_host_gb_per_s": 54, "not_measured": "all_reduce"},
{"id": "GPU-d", "model": "H100", "matmul_tflop_per_s": 660, "failure": "wrong memory: 1 of 134217728 words were not kept as written", "not_measured": "memory_pattern"},
{"id": "GPU-e", "model": "H100", "matmul_tflop_per_s": 660, "memory_copy_gb_per_s": 3005, "host_to_device_gb_per_s": 55, "device_to_host_gb_per_s": 54}],
"all_reduce": {"gpus": 3, "bytes": 268435456, "bus_gb_per_s": 361.5}}`

func TestFigures(t *testing.T) {
	judge := func(text string) []finding {
		var r preflight.Report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		return findings(checkFigures(r))
	}
	all := judge(report)
	has(t, all, "gpu 0", ok, "H100, GPU-a; matrix product 655 TFLOP/s (median of 3 others 650); memory 3010 GB/s (median of 3 others 3000)")
	has(t, all, "gpu 0", ok, "64.0 GiB of memory tested")
	has(t, all, "gpu 1", note, "GPU-b: slow in matrix product, host to device; matrix product 412 TFLOP/s (median of 3 others 655)")
	has(t, all, "gpu 2", note, "not measured: all_reduce; 39.6 of 79.2 GiB were in use")
	has(t, all, "gpu 3", problem, "GPU-d: wrong memory: 1 of 134217728 words were not kept as written; matrix product 660 TFLOP/s")
	has(t, all, "gpu 4", ok, "memory tested: unknown")
	has(t, all, "all-reduce", ok, "3 GPUs together, bus bandwidth 361.5 GB/s")
	if len(all) != 6 {
		t.Errorf("%d findings: %+v", len(all), all)
	}
	has(t, judge(strings.Replace(report, `"bytes": 268435456, "bus_gb_per_s": 361.5`, `"failure": "NCCL error"`, 1)), "all-reduce", problem, "3 GPUs together: NCCL error")
	has(t, judge(strings.Replace(report, `"bytes": 268435456, "bus_gb_per_s": 361.5`, `"not_measured": "it has not ended within 3.0 s"`, 1)), "all-reduce", note, "not measured: it has not ended")
	has(t, judge(strings.Replace(report, `"cuda", "torch"`, `"cpu", "torch"`, 1)), "device", note, "stand-in for tests, cpu")
	has(t, judge(`{"device": "cuda", "problem": "torch cannot be imported: ModuleNotFoundError: No module named 'torch'", "gpus": []}`), "gpus", problem, "No module named 'torch'")
}

func TestNoGPU(t *testing.T) {
	has(t, one(noGPU("auto", true, "")), "gpus", problem, "there is no nvidia-smi in PATH")
	has(t, one(noGPU("auto", false, "")), "gpus", problem, "the driver is not loaded")
	has(t, one(noGPU("auto", false, "7")), "gpus", problem, "CUDA_VISIBLE_DEVICES=7")
	has(t, one(noGPU("none", true, "")), "gpus", problem, "REGROUP_AGENT_GPUS=none")
}
